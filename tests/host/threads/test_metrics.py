"""The metrics of the threads of an instance, on a broker: ratios, restores and standby tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from penstock.host.threads.host import ThreadsHost
from penstock.metrics.host_metrics import streams_metrics
from penstock.metrics.record_counts import RecordCounts
from penstock.streams import KafkaStreams
from tests.host.threads.support import Listening
from tests.host.threads.test_host import NAMES, SECONDS, HeldRestore, WordCount
from tests.support.brokers import RunningBroker
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.one_broker

THREAD, UPDATER, TASK = "stream-thread-metrics", "stream-state-updater-metrics", "stream-task-metrics"


@pytest.fixture
def words(broker: RunningBroker, tmp_path: Path, unique_name: NAMES) -> WordCount:
    return WordCount(broker, tmp_path, unique_name)


def of(host: ThreadsHost, group: str, name: str) -> list[float]:
    """Return the values of a metric, of each task that has it."""
    metrics = streams_metrics("client", {}, RecordCounts(), host.measured())
    found = (each.metric_value for key, each in metrics.items() if (key.group, key.name) == (group, name))
    return [value for value in found if not isinstance(value, str)]


def test_a_restore_is_measured_while_it_goes_on(words: WordCount, tmp_path: Path) -> None:
    words.write("a b", "a c")
    words.run_to_end(words.host())
    words.settings["state.dir"] = str(tmp_path / "other")
    restore = HeldRestore()
    host = words.host(until_end=False, restore_listener=restore)
    host.start(Listening())
    try:
        assert restore.begun.wait(SECONDS)
        [remaining] = of(host, TASK, "restore-remaining-records-total")
        assert remaining > 0
        assert until(lambda: of(host, UPDATER, "active-restore-ratio")[0] > 0)
        assert of(host, UPDATER, "active-restoring-tasks")[0] > 0
        restore.let_go.set()
        assert until(lambda: of(host, UPDATER, "active-restoring-tasks") == [0])
        assert of(host, TASK, "restore-remaining-records-total") == [0, 0]
        assert sum(of(host, TASK, "restore-total")) == sum(restore.restored.values()) >= remaining
        assert of(host, UPDATER, "restore-records-rate")[0] > 0
    finally:
        restore.let_go.set()
        assert host.close(60_000)


def test_instances_measure_their_standby_tasks(words: WordCount, tmp_path: Path) -> None:
    words.settings |= {"num.standby.replicas": 1, "heartbeat.interval.ms": 100}
    options: dict[str, Any] = {"until_end": False, "make_membership": None}
    first = words.host(**options)
    words.settings["state.dir"] = str(tmp_path / "other")
    second = words.host(**options)
    try:
        for host in (first, second):
            host.start(Listening())
        for host in (first, second):
            assert until(lambda host=host: of(host, UPDATER, "standby-updating-tasks") == [1])
        words.write("a b c d e f g h")  # some for each task
        for host in (first, second):
            assert until(lambda host=host: sum(of(host, TASK, "update-total")) > 0)
            assert until(lambda host=host: 0 < of(host, UPDATER, "standby-update-ratio")[0] < 1)
            assert 0 < of(host, UPDATER, "idle-ratio")[0] < 1
        assert first.close(60_000)
        assert until(lambda: of(second, UPDATER, "standby-updating-tasks") == [0])
    finally:
        assert first.close(60_000)
        assert second.close(60_000)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_ratios_of_a_running_application_are_answered(words: WordCount, threads: int) -> None:
    port = free_port()
    words.settings |= {
        "penstock.host": "threads",
        "penstock.metrics.prometheus.port": port,
        "num.stream.threads": threads,
    }
    words.write("a b", "a c")

    def ratios() -> dict[str, float]:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line.startswith("kafka_streams_stream_thread_metrics_"))
        names = ((name.partition("{")[0].rpartition("thread_metrics_")[2], value) for name, _, value in samples)
        return {name: float(value) for name, value in names if name.endswith(("_ratio", "process_records_max"))}

    with KafkaStreams(words.topology(), words.config()):
        active = ["poll_ratio", "process_ratio", "commit_ratio", "process_records_max"]
        assert until(lambda: all(ratios().get(name, 0) > 0 for name in active))
        found = ratios()
    assert found["punctuate_ratio"] == 0  # the program has none
    assert all(found[name] < 1 for name in ("process_ratio", "commit_ratio"))
