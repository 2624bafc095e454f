"""Savepoints as Python functions, without a run; tests/host/spark/checkpoints has those of applications that ran."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Materialized, StreamsBuilder, StreamsConfig, Topology, savepoints
from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.errors import LockError, StreamsError
from penstock.host.spark.checkpoints.checkpoint import checkpoint_of
from penstock.host.spark.checkpoints.evolution import Evolution
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.host.storage.directories import application_path
from penstock_broker.process import BrokerProcess


def counting(*stores: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    for store in stores:
        stream.group_by_key().count(Materialized.as_(store))
    return builder.build()


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    """The configuration of an application that never ran, and has no brokers."""
    return StreamsConfig({"application.id": "app", "state.dir": str(tmp_path / "state")}, environment={})


ABSENT_SAVEPOINT: dict[str, Callable[[StreamsConfig, str], object]] = {
    "inspect": lambda config, saved: savepoints.inspect(saved),
    "restore": lambda config, saved: savepoints.restore(saved, config),
    "export": lambda config, saved: savepoints.export_to_kafka(saved, counting("a"), config),
}
ABSENT_CHECKPOINT: dict[str, Callable[[StreamsConfig, str], object]] = {
    "take": savepoints.take,
    "drop": lambda config, saved: savepoints.drop(config, "a"),
    "diff": lambda config, saved: savepoints.diff(counting("a"), config, config),
}


@pytest.mark.parametrize("function", ABSENT_SAVEPOINT)
def test_a_savepoint_that_does_not_exist_is_named(function: str, config: StreamsConfig, tmp_path: Path) -> None:
    with pytest.raises(StreamsError, match=f"There is no savepoint at {tmp_path}/saved"):
        ABSENT_SAVEPOINT[function](config, str(tmp_path / "saved"))
    assert checkpoint_of(config).read_metadata() is None
    assert savepoints.list_savepoints(str(tmp_path)) == []


@pytest.mark.parametrize("function", ABSENT_CHECKPOINT)
def test_a_checkpoint_that_does_not_exist_is_named(function: str, config: StreamsConfig, tmp_path: Path) -> None:
    with pytest.raises(StreamsError, match=f"There is no checkpoint at {tmp_path}/state/app/checkpoint"):
        ABSENT_CHECKPOINT[function](config, str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()


def test_an_application_may_be_the_directory_of_its_checkpoint(config: StreamsConfig, tmp_path: Path) -> None:
    with pytest.raises(StreamsError, match=f"There is no checkpoint at {tmp_path}/here"):
        savepoints.diff(counting("a"), str(tmp_path / "here"), config)


def test_a_running_application_keeps_its_stores(config: StreamsConfig) -> None:
    with CheckpointLock(checkpoint_of(config), application_path(config), "app"), pytest.raises(LockError):
        savepoints.drop(config, "a")


@pytest.mark.parametrize(
    ("after", "continued", "new", "removed"),
    [(["a", "b"], {"a", "b"}, (), ()), (["a", "b", "c"], {"a", "b"}, ("c",), ()), (["b"], {"b"}, (), ("a",))],
)
def test_stores_of_a_changed_program_are_found_by_name(
    config: StreamsConfig, after: list[str], continued: set[str], new: tuple[str, ...], removed: tuple[str, ...]
) -> None:
    programs = savepoints.diff_programs((counting("a", "b"), config), (counting(*after), config))
    assert ({*programs.kept, *programs.moved}, programs.new, programs.removed) == (continued, new, removed)
    shape = savepoints.shape_of(counting("a", "b"), config)
    assert savepoints.changes(counting(*after), config, shape) == programs


def test_a_first_run_has_no_changes(config: StreamsConfig) -> None:
    assert savepoints.changes(counting("a"), config, None) == Evolution()


def test_partitions_of_stores_are_those_of_the_topics_of_the_brokers(
    config: StreamsConfig, embedded_broker: BrokerProcess, unique_name: Callable[[str], str]
) -> None:
    topic, builder = unique_name("in"), StreamsBuilder()
    builder.stream(topic).group_by_key().count(Materialized.as_("a"))
    online = config.overridden({"bootstrap.servers": embedded_broker.bootstrap_servers})
    admin = ConfluentAdmin(online)
    admin.create_topics([NewTopic(topic, 3, 1, {})])
    admin.close()
    assert savepoints.topics_of(config) == {}
    assert savepoints.topics_of(online)[topic] == 3
    assert savepoints.partitions_of_stores(builder.build(), online) == {"a": 3}


def test_an_application_without_committed_offsets_is_not_imported(
    config: StreamsConfig, embedded_broker: BrokerProcess, unique_name: Callable[[str], str]
) -> None:
    name, topic = unique_name("app"), unique_name("in")
    online = config.overridden({"bootstrap.servers": embedded_broker.bootstrap_servers, "application.id": name})
    admin = ConfluentAdmin(online)
    admin.create_topics([NewTopic(topic, 1, 1, {})])
    admin.close()
    builder = StreamsBuilder()
    builder.stream(topic).to("out")
    with pytest.raises(StreamsError, match=f"The group {name} has committed no offset, so there is nothing to import"):
        savepoints.import_from_kafka(builder.build(), online)
    assert checkpoint_of(online).read_metadata() is None
