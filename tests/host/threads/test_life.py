"""KafkaStreams and named topologies on the threads host: states, listeners, handlers, queries, metrics, the end."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.application.uncaught_errors import StreamsUncaughtExceptionHandler
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized
from penstock.errors import ConfigError, StreamsError, TopologyError
from penstock.host.api import State, StreamThreadExceptionResponse
from penstock.host.open import open_state
from penstock.host.threads.host import ThreadsHost
from penstock.metrics import Metric, MetricName
from penstock.plan.topology import Topology, built_topology
from penstock.record import TopicPartition
from penstock.state.query.queryable import QueryableStoreTypes, StoreQueryParameters
from penstock.streams import KafkaStreams
from tests.host.threads.support import Listening
from tests.host.threads.test_host import NAMES, Restores, WordCount
from tests.support.brokers import RunningBroker
from tests.support.waiting import until

pytestmark = pytest.mark.one_broker

COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())


@pytest.fixture
def words(broker: RunningBroker, tmp_path: Path, unique_name: NAMES) -> WordCount:
    found = WordCount(broker, tmp_path, unique_name)
    found.settings |= {"penstock.host": "threads", "heartbeat.interval.ms": 100}
    return found


def counting(builder: StreamsBuilder, source: str, left: list[Exception]) -> None:
    def word(_: str, value: str) -> str:
        if left and value == "bad":
            raise left.pop()
        return value

    builder.stream(source).group_by(word).count(Materialized.as_("counts"))


def topology(words: WordCount, left: list[Exception] | None = None) -> Topology:
    builder = StreamsBuilder()
    counting(builder, words.source, left or [])
    return builder.build()


def replaced(_: BaseException) -> StreamThreadExceptionResponse:
    return StreamThreadExceptionResponse.REPLACE_THREAD


def names_of(metrics: Mapping[MetricName, Metric]) -> set[str]:
    return {name.name for name in metrics}


@pytest.mark.parametrize("threads", [1, 2])
def test_an_application_runs_pauses_recovers_and_ends(words: WordCount, threads: int) -> None:
    states, left, restores = list[State](), [ValueError("once")], Restores()
    words.settings["num.stream.threads"] = threads
    words.settings["processing.guarantee"] = "exactly_once_v2"
    words.settings["statistics.interval.ms"] = 200
    streams = KafkaStreams(topology(words, left), words.config())
    streams.set_state_listener(lambda new, old: states.append(new))
    handler: StreamsUncaughtExceptionHandler = replaced
    streams.set_uncaught_exception_handler(handler)
    streams.set_global_state_restore_listener(restores)
    with streams:
        assert until(lambda: streams.state() is State.RUNNING)
        counts = streams.store(COUNTS)
        words.write("a", "a")
        assert until(lambda: dict(counts.all()) == {"a": 2})
        streams.pause()
        words.write("a", "a")
        streams.resume()
        words.write("bad", "a")
        assert until(lambda: _counts(streams) == {"a": 5, "bad": 1})
        assert "commit-total" in names_of(streams.metrics())
        assert streams.staleness().epoch > 0
        assert set(streams.all_local_store_partition_lags()) == {"counts"}
        assert streams.streams_metadata_for_store("counts")
        assert until(lambda: streams.statistics()["lag"] == 0)
        assert until(lambda: states.count(State.RUNNING) >= 2)
        assert until(lambda: streams.statistics()["clients"].keys() == {"consumer", "producer"})
    assert left == [] or threads == 2  # each worker process has its own
    assert set(restores.restored) == {"counts"}
    assert states[:2] == [State.REBALANCING, State.RUNNING]
    assert states[-2:] == [State.PENDING_SHUTDOWN, State.NOT_RUNNING]


@pytest.mark.usefixtures("marked_log")
@pytest.mark.parametrize("threads", [1, 2])
def test_lines_of_the_log_have_the_number_of_their_commit(
    words: WordCount, threads: int, caplog: pytest.LogCaptureFixture
) -> None:
    words.settings |= {"num.stream.threads": threads, "commit.interval.ms": 5, "buffered.records.per.partition": 80}
    builder = StreamsBuilder()
    builder.stream(words.source).peek(lambda _, value: logging.getLogger("shop").warning(value)).to(words.sink)
    words.write(*map(str, range(400)))
    with KafkaStreams(builder.build(), words.config()) as streams:
        assert until(lambda: sum(each.records for each in streams.statistics()["recent_commits"]) == 400)
    logged = Counter(vars(line)["penstock_epoch"] for line in caplog.records if line.name == "shop")
    commits = {each.number: each.records for each in streams.statistics()["recent_commits"] if each.records}
    assert logged == commits


def _counts(streams: KafkaStreams) -> dict[str, int]:
    """Return what the store has, nothing while the tasks are set up."""
    try:
        return dict(streams.store(COUNTS).all())
    except StreamsError:
        return {}


def test_instances_that_run_to_the_end_return_when_their_group_has_processed_everything(words: WordCount) -> None:
    words.write(*(f"a{n}" for n in range(200)))
    directory = Path(words.settings["state.dir"])
    runs = [KafkaStreams(topology(words), words.config(**{"state.dir": str(directory / str(n))})) for n in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(each.run_to_end, 120_000) for each in runs]:
            run.result()
    place = [TopicPartition(f"{words.app}-counts-repartition", n) for n in range(2)]
    committed = words.admin.committed_offsets(words.app, place)
    assert sum(each.offset for each in committed.values()) == 200
    assert [each.statistics()["lag"] for each in runs] == [0, 0]


def test_an_error_without_a_handler_ends_the_application(words: WordCount) -> None:
    streams = KafkaStreams(topology(words, [ValueError("bad word")]), words.config())
    words.write("bad")
    with pytest.raises(StreamsError, match=f"topic={words.source}"):
        streams.run_to_end(120_000)
    assert streams.state() is State.ERROR


def test_a_session_of_spark_is_refused(words: WordCount) -> None:
    with pytest.raises(ConfigError, match="runs without Spark"):
        ThreadsHost(built_topology(topology(words), words.app), words.config(), object())


def test_state_of_this_host_is_asked_for_in_the_application(words: WordCount) -> None:
    with pytest.raises(ConfigError, match=r"keeps no checkpoint .* by KafkaStreams\.store"):
        open_state(topology(words), words.config())


def test_a_checkpoint_of_the_spark_host_is_not_passed_over(words: WordCount, tmp_path: Path) -> None:
    (tmp_path / "state" / words.app / "checkpoint").mkdir(parents=True)
    streams = KafkaStreams(topology(words), words.config())
    with pytest.raises(StreamsError, match=rf"The state of {words.app} is in the checkpoint of the Spark host"):
        streams.start()
    KafkaStreams(topology(words), words.config()).clean_up()
    assert (tmp_path / "state" / words.app / "checkpoint").is_dir()


def test_a_history_is_refused_with_the_line_of_the_program(words: WordCount) -> None:
    builder = StreamsBuilder()
    builder.stream_from_history("/data", "past", 1_000)
    host = ThreadsHost(built_topology(builder.build(), words.app), words.config())
    expected = (
        r"Topic past has a history \(source KSTREAM-SOURCE-0000000000, created at .*test_life.py:\d+\), which only the "
        r"Spark host reads: set penstock.host=spark. After the history, or without it, use stream\('past'\)\."
    )
    with pytest.raises(TopologyError, match=expected):
        host.start(Listening())


def test_the_host_loads_neither_pyspark_nor_pandas() -> None:
    program = (
        "import sys; import penstock.host.threads.host, penstock.streams, penstock.named_topologies; "
        "print(sorted({'pyspark', 'py4j', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
