"""What a killed comparison leaves is deleted on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import LockError
from penstock.shadow import abort
from penstock.shadow.pair import ShadowOptions, ShadowPair
from penstock_broker.process import BrokerProcess
from tests.host.test_topologies import word_count
from tests.support.waiting import until


@pytest.fixture
def config(embedded_broker: BrokerProcess, tmp_path: Path, unique_name: Callable[[str], str]) -> StreamsConfig:
    name = unique_name("app")
    return StreamsConfig(
        {
            "application.id": name,
            "bootstrap.servers": embedded_broker.bootstrap_servers,
            "penstock.host": "threads",
            "state.dir": str(tmp_path),
        }
    )


def test_abort_deletes_topics_and_files_of_versions_alone(config: StreamsConfig) -> None:
    name = str(config["application.id"])
    admin = ConfluentAdmin(config)
    kept = [f"{name}-counts-changelog", f"{name}-in"]
    admin.create_topics([NewTopic(topic, 1) for topic in (*kept, f"{name}-shadow-new.output.{name}-out")])
    left = Path(config["state.dir"]) / f"{name}~shadow" / "savepoint"
    left.mkdir(parents=True)
    program = word_count(f"{name}-in", f"{name}-out"), config
    abort(program, program)
    assert until(lambda: sorted(topic for topic in admin.topics() if topic.startswith(name)) == kept)
    admin.close()
    assert not left.exists()


def test_a_running_comparison_is_not_aborted(config: StreamsConfig) -> None:
    name = str(config["application.id"])
    admin = ConfluentAdmin(config)
    admin.create_topics([NewTopic(f"{name}-in", 1), NewTopic(f"{name}-out", 1)])
    admin.close()
    program = word_count(f"{name}-in", f"{name}-out"), config
    pair = ShadowPair(program, program, ShadowOptions(), lambda topology, config: None)
    with pair.opened(), pytest.raises(LockError, match=f"Another comparison of {name} runs on this machine"):
        abort(program, program)
