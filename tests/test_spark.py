"""Resets of applications by their topology and configuration, and the data source of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Grouped, Materialized, StreamsBuilder, StreamsConfig, Topology
from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.errors import ConfigError, LockError
from penstock.host.spark.checkpoints.checkpoint import checkpoint_of
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.host.storage.directories import application_path
from penstock.spark import ApplicationReset, TopicDataSource, plan_reset, reset
from penstock_broker.process import BrokerProcess


@pytest.fixture
def given(embedded_broker: BrokerProcess, unique_name: Callable[[str], str], tmp_path: Path) -> dict[str, str]:
    """The configuration of an application."""
    name, servers = unique_name("app"), embedded_broker.bootstrap_servers
    return {"application.id": name, "bootstrap.servers": servers, "state.dir": str(tmp_path)}


@pytest.fixture
def admin(given: dict[str, str]) -> Iterator[ConfluentAdmin]:
    """A client of the broker, with the source and repartition topic of the application there."""
    admin = ConfluentAdmin(StreamsConfig(given))
    admin.create_topics([NewTopic(topic, 1, 1, {}) for topic in (source(given), repartition(given))])
    yield admin
    admin.close()


def source(given: dict[str, str]) -> str:
    return f"{given['application.id']}-source"


def repartition(given: dict[str, str]) -> str:
    return f"{given['application.id']}-counts-repartition"


def topology(given: dict[str, str]) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(source(given)).group_by(lambda key, value: value, Grouped.as_("counts"))
    words.count(Materialized.as_("counts"))
    return builder.build()


def test_a_reset_deletes_internal_topics_and_state_but_no_sources(given: dict[str, str], admin: ConfluentAdmin) -> None:
    state = application_path(StreamsConfig(given)) / "copy"
    state.parent.mkdir(parents=True)
    state.touch()
    planned = plan_reset(topology(given), given)
    assert (planned.application_id, planned.topics) == (given["application.id"], (repartition(given),))
    assert state.exists()
    assert repartition(given) in admin.topics()
    assert reset(topology(given), StreamsConfig(given)) == planned
    assert not state.exists()
    assert repartition(given) not in admin.topics()
    assert source(given) in admin.topics()


def test_a_second_reset_has_nothing_left_to_delete(given: dict[str, str], admin: ConfluentAdmin) -> None:
    reset(topology(given), given)
    assert reset(topology(given), given) == ApplicationReset(given["application.id"], None, None, None, (), ())


def test_a_running_application_is_not_reset(given: dict[str, str], admin: ConfluentAdmin) -> None:
    config = StreamsConfig(given)
    lock = CheckpointLock(checkpoint_of(config), application_path(config), given["application.id"])
    with lock, pytest.raises(LockError):
        reset(topology(given), given)
    assert repartition(given) in admin.topics()


def test_a_reset_needs_an_application_id(given: dict[str, str]) -> None:
    del given["application.id"]
    for function in (reset, plan_reset):
        with pytest.raises(ConfigError, match=r"application\.id"):
            function(Topology().add_source("S", "in"), given)


def test_the_data_source_has_the_format_of_the_docstring() -> None:
    assert TopicDataSource.name() == "penstock"
