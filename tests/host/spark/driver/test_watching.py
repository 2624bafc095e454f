"""`penstock ui FILE` shows an application that another process runs, from its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import orjson
import pytest

from penstock.errors import StateStoreNotAvailableError, UnsupportedOperationError
from penstock.host.api import State, WatchedStatistics
from penstock.host.spark.driver.watching import COMMITS_MS, CheckpointWatch
from penstock.plan.topology import built_topology
from penstock_broker.common.clock import MockClock
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import Listening, lines, wait_for
from tests.host.test_topologies import word_count
from tests.support.commands import Command
from tests.support.sources import SOURCES
from tests.tools.ui.test_server import address_in

pytestmark = [pytest.mark.parametrize("broker", ["embedded"], indirect=True)]

PROGRAM = """
from tests.host.test_topologies import word_count
topology = word_count({source!r}, {target!r})
config = {config!r}
"""


def test_it_follows_commits_and_steers_nothing(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    topology, config = word_count(source, target), spark_runner.config(application)
    clock = MockClock(0)  # behind the commits, whose age is 0 then
    watch, listening = CheckpointWatch(built_topology(topology, application), config, clock), Listening()
    with pytest.raises(StateStoreNotAvailableError, match="There is no checkpoint"):
        watch.start(listening)
    query = InlineQuery(topology, config, spark_runner.admin)
    spark_runner.write(source, lines(["a", "b"]))
    query.run_to_end()
    watch.start(listening)
    before = watch.statistics()
    assert (listening.states, before.records_in, before.recent_commits) == (["RUNNING"], 0, [])
    spark_runner.write(source, lines(["a"]))
    query.run_to_end()
    figures = watch.statistics()
    assert figures.records_in == 1
    assert figures.recent_commits[-1].number == figures.epoch == watch.queries().staleness().epoch
    assert figures.watched == WatchedStatistics(state=State.RUNNING)
    clock.advance(figures.recent_commits[-1].committed_at_ms + COMMITS_MS)
    assert watch.statistics().watched == WatchedStatistics(state=State.RUNNING)
    clock.advance(1)
    assert watch.statistics().watched == WatchedStatistics(state=None)
    for change in (watch.pause, watch.resume, watch.reset, watch.clean_up):
        with pytest.raises(UnsupportedOperationError, match="Another process runs this application"):
            change()
    watch.close(0)
    query.close()


def test_the_command_shows_an_application_and_what_a_file_would_change(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    config = spark_runner.config(application)
    query = InlineQuery(word_count(source, target), config, spark_runner.admin)
    spark_runner.write(source, lines(["a", "b a"]))
    query.run_to_end()
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(source=source, target=target, config=dict(config.given())))
    root = str(Path(__file__).parents[4])
    with Command(("ui", str(file), "--port", "0"), tmp_path, {"PYTHONPATH": f"{SOURCES}:{root}"}) as command:
        wait_for(lambda: "shows itself at" in command.output())
        address = address_in(command.output())

        def get(path: str) -> Any:
            with urlopen(f"{address}{path}", timeout=60) as answer:
                return orjson.loads(answer.read())

        overview = wait_for(lambda: (seen := get("api/v1/overview"))["lag"] == 0 and seen)
        assert (overview["watched"], overview["topologies"][0]["problem"]) == (True, None)
        assert overview["state"] == get("health/ready?max_lag=0")["state"] == get("health/live")["state"] == "RUNNING"
        with urlopen(f"{address}metrics", timeout=60) as answer:
            metrics = answer.read().decode()
        assert f'client_id="{config.client_id()}-watcher"' in metrics
        assert "alive_stream_threads" not in metrics
        assert get("api/v1/stores/counts?key=a")["entries"][0]["value"] == 2
        assert get("api/v1/changes") == {"compared": f"{file} was compared with the checkpoint.", "changes": []}
        with urlopen(f"{address}changes", timeout=60) as answer:
            assert "nothing changes" in answer.read().decode()
        with urlopen(Request(address), timeout=60) as answer:
            assert "WATCHED" in answer.read().decode()
        command.interrupt()
        assert command.nothing_left()
    query.close()
