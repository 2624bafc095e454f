"""The threads host on a broker: a topology runs to the end, goes on after a close, and restores its stores."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Produced
from penstock.errors import (
    BrokerNotFoundError,
    InvalidStateStoreError,
    LockError,
    MissingSourceTopicError,
    RecordTooLargeError,
    RetriableError,
    StateStoreNotAvailableError,
    StreamsError,
    TaskMigratedError,
)
from penstock.exception_handlers import ErrorHandlerContext, ProducerRecord, ProductionExceptionHandler, Response
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.commits.production import ProductionFailedError
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.topic_watch import TopicChanges, TopicWatch, UsedTopics
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import assembly
from penstock.host.threads import host as threads_host
from penstock.host.threads import vocabulary as v
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.host import ThreadsHost
from penstock.host.threads.membership import Post
from penstock.host.threads.resetting import plan_reset
from penstock.host.threads.settings import MAX_POLL_INTERVAL_MS
from penstock.host.threads.workers import worker_process
from penstock.plan.partition_grouper import PartitionGrouper
from penstock.plan.topology import Topology, built_topology
from penstock.record import RecordBatch, TopicPartition
from penstock.serdes import Serdes
from penstock.serdes.avro import AvroSerde
from penstock.state.query.queryable import QueryableStoreTypes, StoreQueryParameters
from penstock.state.restore_listener import StateRestoreListener
from penstock.testing import EmbeddedBroker
from penstock_broker.common.clock import SystemClock
from tests.host.threads.support import AloneMembership, Listening
from tests.support.brokers import RunningBroker
from tests.support.plain_producer import PlainProducer
from tests.support.waiting import until

SECONDS = 120.0
NAMES = Callable[[str], str]
DEFAULT, LEAVE, REMAIN = GroupMembershipOperation


class Restores(StateRestoreListener):
    """Counts what is restored."""

    def __init__(self) -> None:
        self.restored: dict[str, int] = {}

    def on_restore_start(self, topic_partition: TopicPartition, store_name: str, start: int, end: int) -> None:
        self.restored.setdefault(store_name, 0)

    def on_batch_restored(self, topic_partition: TopicPartition, store_name: str, end: int, restored: int) -> None:
        self.restored[store_name] += restored

    def on_restore_end(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        pass


class WordCount:
    """Topics and a state directory for the count of words, and hosts that run it."""

    def __init__(self, broker: RunningBroker, directory: Path, unique_name: NAMES) -> None:
        self.app, self.source, self.sink = unique_name("app"), unique_name("in"), unique_name("out")
        self.store = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
        self.settings: dict[str, Any] = {
            "application.id": self.app,
            "bootstrap.servers": broker.bootstrap_servers,
            "state.dir": str(directory / "state"),
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            "penstock.restart.backoff.ms": 10,
            "commit.interval.ms": 50,
            "session.timeout.ms": 60_000,  # nobody leaves because a machine is busy
        }
        self.admin = ConfluentAdmin(self.config())
        self.admin.create_topics([NewTopic(self.source, 2), NewTopic(self.sink, 1)])

    def config(self, **settings: Any) -> StreamsConfig:
        return StreamsConfig({**self.settings, **settings})

    def topology(self, split: Callable[[str], list[str]] = str.split) -> Topology:
        builder = StreamsBuilder()
        words = builder.stream(self.source).flat_map_values(split)
        counts = words.group_by(lambda _, word: word).count()
        counts.to_stream().to(self.sink, Produced.with_(Serdes.string(), Serdes.long()))
        return builder.build()

    def host(self, split: Callable[[str], list[str]] = str.split, **options: Any) -> ThreadsHost:
        defaults = {"until_end": True, "make_membership": AloneMembership}
        topology = built_topology(self.topology(split), self.app)
        return ThreadsHost(**{**defaults, "built": topology, "config": self.config(), **options})

    def write(self, *lines: str) -> None:
        producer = PlainProducer(self.config())
        for number, line in enumerate(lines):
            producer.send(self.source, None, line.encode(), number % 2)
        producer.close()

    def run_to_end(self, host: ThreadsHost, listening: Listening | None = None) -> Listening:
        listening = listening or Listening()
        host.start(listening)
        assert listening.ended.wait(SECONDS)
        assert host.close(60_000)
        if listening.error is not None:
            raise listening.error
        return listening

    def counts(self) -> dict[str, int]:
        """Return the last count of each word in the output."""
        output = self._output()
        return {k.decode(): int.from_bytes(v) for each in output for k, v in zip(each.keys, each.values, strict=True)}

    def values(self) -> list[bytes]:
        """Return the values of the output."""
        return [value for each in self._output() for value in each.values]

    def _output(self) -> list[RecordBatch]:
        place = TopicPartition(self.sink, 0)
        fetcher = ConfluentFetcher(self.config())
        try:
            end = self.admin.end_offsets([place])[place]
            return list(fetcher.fetch(place, 0, end, read_committed=True)) if end else []
        finally:
            fetcher.close()


@pytest.fixture
def words(broker: RunningBroker, tmp_path: Path, unique_name: NAMES) -> WordCount:
    return WordCount(broker, tmp_path, unique_name)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_topology_runs_to_the_end_of_its_inputs_and_goes_on_from_there(words: WordCount, guarantee: str) -> None:
    words.settings["processing.guarantee"] = guarantee
    words.write("a b", "a c")
    assert words.run_to_end(words.host()).told[-1] == "stopped"
    assert words.counts() == {"a": 2, "b": 1, "c": 1}
    words.write("a", "d")
    host = words.host()
    words.run_to_end(host)
    assert words.counts() == {"a": 3, "b": 1, "c": 1, "d": 1}
    assert (host.statistics().records_in, host.statistics().lag) == (2, 0)
    producer = PlainProducer(words.config())
    producer.send(f"{words.app}-{words.store}-repartition", b"e", b"e", 0)
    producer.close()
    words.run_to_end(words.host())  # what waits in a repartition topic is left of an earlier run
    assert words.counts()["e"] == 1
    config = words.admin.describe_topic(f"{words.app}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog").config
    assert config["cleanup.policy"] == "compact"


@pytest.mark.one_broker
@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_copy_of_the_state_is_made_again(
    words: WordCount, tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    words.settings |= {"penstock.state.base": "rocksdb", "num.stream.threads": workers}
    words.write("a b", "a c")
    words.run_to_end(words.host())
    tables = list(tmp_path.rglob("*.sst"))
    for path in tables:
        block = path.read_bytes()
        path.write_bytes(bytes([block[0] ^ 1]) + block[1:])
    words.write("a", "d")
    words.run_to_end(words.host())
    assert words.counts() == {"a": 3, "b": 1, "c": 1, "d": 1}
    assert len(tables) > 0
    assert "is damaged: Corruption" in caplog.text


def hanging(line: str) -> list[str]:
    """Return the words of a line; one such as hang:PATH does not return the first time."""
    word, _, path = line.partition(":")
    if path and not Path(path).exists():
        Path(path).touch()
        threading.Event().wait()
    return word.split()


@pytest.mark.one_broker
def test_worker_processes_share_no_schema_registry_in_memory(words: WordCount) -> None:
    words.settings |= {"num.stream.threads": 2, "default.value.serde": AvroSerde("mock://one")}
    host = words.host(str.split, until_end=False, make_membership=None)
    with pytest.raises(StreamsError, match=r"AvroSerde for values .*num\.stream\.threads=2 runs the tasks in as many"):
        host.start(Listening())


class Jumping(SystemClock):
    """A clock that a test can put forward."""

    ahead_ms = 0

    def milliseconds(self) -> int:
        return super().milliseconds() + self.ahead_ms


@pytest.mark.one_broker
def test_a_worker_process_whose_function_does_not_return_is_replaced(
    words: WordCount, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words.settings |= {"num.stream.threads": 2, "processing.guarantee": "exactly_once_v2"}
    hung, clock, listening = tmp_path / "hung", Jumping(), Listening()
    monkeypatch.setattr(worker_process, "elapsed_milliseconds", clock.milliseconds)
    host = words.host(hanging, until_end=False, make_membership=None, clock=clock)
    host.start(listening)
    try:
        words.write("a", "b")
        assert until(lambda: words.counts() == {"a": 1, "b": 1})
        words.write(f"hang:{hung}", "b")
        assert until(hung.exists)
        clock.ahead_ms += MAX_POLL_INTERVAL_MS
        words.write("a", "b")
        assert until(lambda: words.counts() == {"a": 2, "b": 3, "hang": 1})
    finally:
        assert host.close(60_000)
    assert "is killed: a function of task 0_0 has not returned for max.poll.interval.ms=300000" in caplog.text
    assert "failure" not in listening.told


@pytest.mark.one_broker
@pytest.mark.parametrize("is_sent", [True, False])
def test_a_program_that_cannot_be_sent_to_worker_processes_runs_in_one_thread_and_says_why(
    words: WordCount, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    lock = threading.Lock()
    told: list[int] = []

    def split(line: str) -> list[str]:
        with lock:
            return line.split()

    def membership(layout: Layout, config: StreamsConfig, post: Post, workers: int, **_: object) -> AloneMembership:
        told.append(workers)
        return AloneMembership(layout, config, post)

    monkeypatch.setattr(assembly, "GroupMembership", membership)
    words.settings["num.stream.threads"] = 2
    words.write("a b", "a c")
    words.run_to_end(words.host(str.split if is_sent else split, make_membership=None))
    assert words.counts() == {"a": 2, "b": 1, "c": 1}
    why = "one thread of .* processes all its tasks, and uses one core: .*cannot be sent to worker processes: .*`lock`"
    assert (told, bool(re.search(why, caplog.text))) == (([2], False) if is_sent else ([1], True))


def test_what_was_read_of_a_repartition_topic_is_deleted(words: WordCount) -> None:
    words.settings["repartition.purge.interval.ms"] = 0
    host, listening = words.host(until_end=False), Listening()
    host.start(listening)
    try:
        words.write("a b", "a c")
        topic = f"{words.app}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"
        places = [TopicPartition(topic, number) for number in range(2)]

        def deleted() -> int:
            return sum(words.admin.beginning_offsets(places).values())

        assert until(lambda: topic in words.admin.topics() and deleted() == 4)
    finally:
        assert host.close(60_000)


@pytest.mark.parametrize("shared", [False, True])
def test_stores_are_restored_only_where_the_disk_does_not_have_them(
    words: WordCount, tmp_path: Path, shared: bool
) -> None:
    words.settings["penstock.state.shared"] = shared
    words.write("a b", "a c")
    words.run_to_end(words.host())
    same_disk, other_disk = Restores(), Restores()
    words.run_to_end(words.host(restore_listener=same_disk))
    # Three words, and one record more if a commit came between the two of "a".
    changelog = f"{words.app}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"
    ends = words.admin.end_offsets([TopicPartition(changelog, number) for number in range(2)])
    words.settings["state.dir"] = str(tmp_path / "other")
    words.write("a", "a")
    words.run_to_end(words.host(restore_listener=other_disk))
    assert sum(same_disk.restored.values()) == 0
    assert sum(other_disk.restored.values()) == sum(ends.values()) in (3, 4)
    assert words.counts() == {"a": 4, "b": 1, "c": 1}


@pytest.mark.one_broker
@pytest.mark.parametrize(("max_age_ms", "restores"), [(-1, False), (3_600_000, True)])
def test_a_start_restores_state_that_is_older_than_the_largest_age(
    words: WordCount, tmp_path: Path, max_age_ms: int, restores: bool
) -> None:
    words.write("a b", "a c")
    words.run_to_end(words.host())
    words.settings["state.cleanup.dir.max.age.ms"] = max_age_ms
    new, old = Restores(), Restores()
    words.run_to_end(words.host(restore_listener=new))
    two_hours_ago = SystemClock().milliseconds() / 1000 - 7_200
    for path in (tmp_path / "state").rglob("lock"):
        os.utime(path, (two_hours_ago, two_hours_ago))
    words.write("a")
    words.run_to_end(words.host(restore_listener=old))
    assert sum(new.restored.values()) == 0
    assert (sum(old.restored.values()) > 0) == restores
    assert words.counts() == {"a": 3, "b": 1, "c": 1}


def test_what_is_restored_is_read_with_the_keys_of_restore_consumers(words: WordCount, tmp_path: Path) -> None:
    words.write("a b", "a c")
    words.run_to_end(words.host())
    words.settings["state.dir"] = str(tmp_path / "other")
    words.settings["restore.consumer.fetch.min.bytes"] = "none"  # no number: only who restores finds that out
    with pytest.raises(StreamsError, match=r"fetch\.min\.bytes"):
        words.run_to_end(words.host())


class HeldRestore(Restores):
    """Holds the first restore until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Event(), threading.Event()

    def on_restore_start(self, topic_partition: TopicPartition, store_name: str, start: int, end: int) -> None:
        super().on_restore_start(topic_partition, store_name, start, end)
        self.begun.set()
        assert self.let_go.wait(SECONDS)


@pytest.mark.one_broker
def test_a_close_during_a_restore_is_no_error(words: WordCount, tmp_path: Path) -> None:
    words.write("a b", "a c")
    words.run_to_end(words.host())
    words.settings["state.dir"] = str(tmp_path / "other")
    restore, listening = HeldRestore(), Listening()
    host = words.host(until_end=False, restore_listener=restore)
    host.start(listening)
    assert restore.begun.wait(SECONDS)
    assert not host.close(0)
    restore.let_go.set()
    assert host.close(60_000)
    assert (listening.told[-1], listening.error) == ("stopped", None)
    assert sum(restore.restored.values()) == 0


def test_tasks_that_fail_are_replaced_if_the_handler_says_so(words: WordCount) -> None:
    left = [ValueError("once")]

    def split(line: str) -> list[str]:
        if left and "c" in line:
            raise left.pop()
        return line.split()

    words.write("a b", "a c")
    listening = Listening(StreamThreadExceptionResponse.REPLACE_THREAD)
    words.run_to_end(words.host(split), listening)
    assert "failure" in listening.told
    counts = words.counts()
    assert (counts["c"], counts["a"] >= 2) == (1, True)  # at least once: a line may be read again


def test_a_task_that_fails_leaves_nothing_that_is_read_of_its_transaction(words: WordCount) -> None:
    left = [ValueError("once")]

    def split(line: str) -> list[str]:
        if left and "c" in line:
            raise left.pop()
        return line.split()

    words.settings |= {"processing.guarantee": "exactly_once_v2", "statestore.cache.max.bytes": 0}
    words.write("a b", "a c", "a")
    listening = Listening(StreamThreadExceptionResponse.REPLACE_THREAD)
    words.run_to_end(words.host(split), listening)
    assert "failure" in listening.told
    assert words.counts() == {"a": 3, "b": 1, "c": 1}


def check_that_a_static_member_goes_on_with_new_partitions(words: WordCount) -> None:
    """Run one instance, and add a partition to its topic."""
    words.settings |= {"group.instance.id": "one", "metadata.max.age.ms": 100}
    builder = StreamsBuilder()
    builder.stream(words.source).to(words.sink)
    listening = Listening()
    host = words.host(built=built_topology(builder.build(), words.app), until_end=False, make_membership=None)
    host.start(listening)
    try:
        words.write("a", "b")
        assert until(lambda: len(words.values()) == 2)
        words.admin.create_partitions(words.source, 3)
        assert until(lambda: listening.told.count("running") == 2 or listening.ended.is_set())
        assert listening.error is None
        producer = PlainProducer(words.config())
        producer.send(words.source, None, b"c", 2)
        producer.close()
        assert until(lambda: len(words.values()) == 3)
    finally:
        assert host.close(60_000)
    assert "failure" not in listening.told


@pytest.mark.one_broker
def test_a_static_member_goes_on_with_new_partitions(words: WordCount) -> None:
    check_that_a_static_member_goes_on_with_new_partitions(words)


class RefusingCommits(AloneMembership):
    """Refuses a commit for each of some errors."""

    def __init__(self, errors: list[Exception], layout: Layout, config: StreamsConfig, post: Post) -> None:
        super().__init__(layout, config, post)
        self._errors = errors

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if not self._errors:
            super().commit(offsets)
            return
        error = self._errors.pop()
        self._post(v.MembershipLost(error) if isinstance(error, TaskMigratedError) else v.Failed(error))


@pytest.mark.one_broker
@pytest.mark.parametrize("error", [TaskMigratedError("counted out"), BrokerNotFoundError("no broker answers")])
def test_a_rebalance_goes_on_though_the_last_commit_before_it_fails(words: WordCount, error: Exception) -> None:
    words.settings["commit.interval.ms"] = 600_000
    listening, errors = Listening(), [error]
    host = words.host(until_end=False, make_membership=partial(RefusingCommits, errors))
    host.start(listening)
    assert listening.running.wait(SECONDS)
    listening.running.clear()
    host.rebalance("a test")
    assert until(lambda: listening.running.is_set() or listening.ended.is_set())
    assert host.close(60_000)
    assert (errors, listening.error) == ([], None)
    assert listening.running.is_set()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_an_instance_that_its_group_has_refused_joins_again_if_the_handler_says_so(
    tmp_path: Path, unique_name: NAMES, guarantee: str
) -> None:
    with EmbeddedBroker() as faulty:
        words = WordCount(RunningBroker("embedded", faulty.bootstrap_servers), tmp_path, unique_name)
        words.settings["processing.guarantee"] = guarantee
        listening = Listening(StreamThreadExceptionResponse.REPLACE_THREAD)
        host = words.host(until_end=False, make_membership=None)
        host.start(listening)
        try:
            words.write("a", "b")
            assert until(lambda: words.counts() == {"a": 1, "b": 1})
            faulty.fail("Heartbeat", "GROUP_AUTHORIZATION_FAILED", times=1)
            assert until(lambda: "failure" in listening.told)
            words.write("a", "b")
            assert until(lambda: words.counts() == {"a": 2, "b": 2})
        finally:
            assert host.close(60_000)
    assert listening.told.count("failure") == 1


def test_an_error_ends_the_host_with_the_place_in_the_program(words: WordCount) -> None:
    def split(line: str) -> list[str]:
        raise ValueError(line)

    words.write("a b")
    with pytest.raises(StreamsError, match=f"topic={words.source}, partition=0, offset=0"):
        words.run_to_end(words.host(split))


class Dropping(ProductionExceptionHandler):
    """Continues without a record, of which it writes the size as a dead letter, and keeps where it came from."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, type[Exception]]] = []

    def handle_error(self, context: ErrorHandlerContext, record: ProducerRecord, exception: Exception) -> Response:
        self.asked.append((context.task_id, context.processor_node_id, type(exception)))
        letter = ProducerRecord(record.topic, b"size", str(len(record.value or b"")).encode(), record.timestamp)
        return Response.resume([letter])


def copying(words: WordCount) -> Topology:
    builder = StreamsBuilder()
    builder.stream(words.source).to(words.sink)
    return builder.build()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_the_handler_decides_about_records_that_the_producer_refuses(words: WordCount, guarantee: str) -> None:
    handler = Dropping()
    words.write("a" * 3_000, "b", "c")
    limits = {"producer.message.max.bytes": 2_000, "processing.guarantee": guarantee}
    words.settings |= limits
    options: dict[str, Any] = {"until_end": True, "make_membership": AloneMembership}
    failing = ThreadsHost(built_topology(copying(words), words.app), words.config(), **options)
    with pytest.raises(ProductionFailedError, match=rf"topic {words.sink} for task 0_0, sink KSTREAM-SINK-0000000001"):
        words.run_to_end(failing)
    config = words.config(**{"production.exception.handler": handler})
    words.run_to_end(ThreadsHost(built_topology(copying(words), words.app), config, **options))
    values = [value.decode() for value in words.values()]
    assert handler.asked == [("0_0", "KSTREAM-SINK-0000000001", RecordTooLargeError)]
    assert {"3000", "b", "c"} == set(values)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_the_handler_decides_about_records_that_brokers_refuse(words: WordCount, guarantee: str) -> None:
    words.sink += "-small"
    words.admin.create_topics([NewTopic(words.sink, 1, config={"max.message.bytes": "2000"})])
    handler = Dropping()
    words.write("a" * 3_000, "b", "c", "d" * 2_500, "e")
    config = words.config(**{"production.exception.handler": handler, "processing.guarantee": guarantee})
    options: dict[str, Any] = {"until_end": True, "make_membership": AloneMembership}
    words.run_to_end(ThreadsHost(built_topology(copying(words), words.app), config, **options))
    values = Counter(value.decode() for value in words.values())
    asked = {(task, "KSTREAM-SINK-0000000001", RecordTooLargeError) for task in ("0_0", "0_1")}
    assert set(handler.asked) == asked
    assert values.keys() == {"3000", "2500", "b", "c", "e"}
    if guarantee == "exactly_once_v2":
        assert set(values.values()) == {1}


def test_a_pause_holds_and_a_close_commits(words: WordCount) -> None:
    words.settings["commit.interval.ms"] = 3_600_000
    host, listening = words.host(until_end=False), Listening()
    host.start(listening)
    assert listening.running.wait(SECONDS)
    host.pause()
    words.write("a", "a")
    host.resume()
    assert until(lambda: sum(host.statistics().processed.values()) == 4)  # two lines, two words
    assert host.close(60_000)
    assert listening.told == ["running", "stopped"]
    words.run_to_end(words.host())
    assert words.counts() == {"a": 2}


def test_stores_are_read_while_the_instance_runs_and_afterwards_no_more(words: WordCount) -> None:
    host, listening = words.host(until_end=False), Listening()
    counts = StoreQueryParameters.from_name_and_type(words.store, QueryableStoreTypes.key_value_store())
    with pytest.raises(StateStoreNotAvailableError):
        host.queries().store(counts).get("a")
    host.start(listening)
    try:
        assert listening.running.wait(SECONDS)
        words.write("a b", "a c")
        read = host.queries().store(counts)
        assert until(lambda: dict(read.all()) == {"a": 2, "b": 1, "c": 1})
        assert sum(host.table(words.store)["value"].to_pylist()) == 4
        assert until(lambda: host.queries().staleness().epoch > 0)
        lags = host.queries().all_local_store_partition_lags()[words.store]
        assert [each.offset_lag for each in lags.values()] == [0, 0]
    finally:
        assert host.close(60_000)
    with pytest.raises(StateStoreNotAvailableError):
        read.get("a")


def test_two_instances_do_not_share_a_state_directory(words: WordCount) -> None:
    host, listening = words.host(until_end=False), Listening()
    host.start(listening)
    try:
        with pytest.raises(LockError, match="uses the state directory"):
            words.host().start(Listening())
    finally:
        assert host.close(60_000)


def check_that_instances_share_and_take_over(words: WordCount, directory: Path) -> None:
    """Run one instance, another one beside it with a state.dir below `directory`, and then that alone."""
    options: dict[str, Any] = {"until_end": False, "make_membership": None}
    first, second, listening = words.host(**options), None, Listening()
    first.start(listening)
    try:
        words.write("a b", "a c")
        assert until(lambda: words.counts() == {"a": 2, "b": 1, "c": 1})
        words.settings["state.dir"] = str(directory / "other")
        second = words.host(**options)
        second.start(Listening())
        both, written = second, list[str]()

        def both_process() -> bool:
            words.write("d", "d")
            written.extend(["d", "d"])
            return bool(both.statistics().records_in)

        assert until(both_process)
        assert first.close(60_000)
        words.write("a b", "a c")
        assert until(lambda: words.counts() == {"a": 4, "b": 2, "c": 2, "d": len(written)})
    finally:
        assert first.close(60_000)
        assert second is None or second.close(60_000)
    assert "error" not in listening.told


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_instances_of_one_group_share_the_tasks_and_take_them_over(
    words: WordCount, tmp_path: Path, guarantee: str
) -> None:
    words.settings |= {"processing.guarantee": guarantee, "heartbeat.interval.ms": 100}
    check_that_instances_share_and_take_over(words, tmp_path)


def check_that_one_instance_shuts_down_both(words: WordCount, directory: Path) -> None:
    """Run two instances; the function of one fails, and its handler answers SHUTDOWN_APPLICATION."""

    def fails(line: str) -> list[str]:
        raise ValueError(f"no such line: {line}")

    options: dict[str, Any] = {"until_end": False, "make_membership": None}
    words.settings["commit.interval.ms"] = 3_600_000
    good, told = words.host(**options), Listening()
    good.start(told)
    bad: ThreadsHost | None = None
    try:
        assert told.running.wait(SECONDS)
        words.settings["state.dir"] = str(directory / "other")
        bad, failing = words.host(fails, **options), Listening(StreamThreadExceptionResponse.SHUTDOWN_APPLICATION)
        bad.start(failing)
        assert failing.running.wait(SECONDS)

        def failed() -> bool:
            words.write("a", "a")
            return "failure" in failing.told

        assert until(failed)
        assert failing.ended.wait(SECONDS)
        assert told.ended.wait(SECONDS)
    finally:
        assert good.close(60_000)
        assert bad is None or bad.close(60_000)
    assert "Exception caught in process" in str(failing.error)
    assert "Another instance has shut down the application (SHUTDOWN_APPLICATION)" in str(told.error)
    assert "failure" not in told.told, "its handler is not asked"
    read = words.admin.committed_offsets(words.app, [TopicPartition(words.source, number) for number in range(2)])
    assert sum(each.offset for each in read.values()) > 0, "it has committed"
    assert not words.admin.describe_group(words.app).members


def test_one_instance_shuts_down_the_application(words: WordCount, tmp_path: Path) -> None:
    words.settings["heartbeat.interval.ms"] = 100
    check_that_one_instance_shuts_down_both(words, tmp_path)


@pytest.mark.one_broker
def test_an_instance_says_that_a_function_does_not_return_and_goes_on_when_it_has(
    words: WordCount, caplog: pytest.LogCaptureFixture
) -> None:
    returns = threading.Event()

    def split(line: str) -> list[str]:
        returns.wait(SECONDS)
        return line.split()

    words.settings |= {"processing.guarantee": "exactly_once_v2", "max.poll.interval.ms": 3_000}
    host = words.host(split, until_end=False, make_membership=None)
    host.start(Listening())
    try:
        words.write("a b", "a c")
        assert until(lambda: "no progress for max.poll.interval.ms=3000" in caplog.text)
        assert until(lambda: not words.admin.describe_group(words.app).members)
        returns.set()
        assert until(lambda: words.counts() == {"a": 2, "b": 1, "c": 1})
    finally:
        returns.set()
        assert host.close(60_000)


@pytest.mark.one_broker
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_words_are_counted_and_close_ends_beside_a_function_that_does_not_return(
    words: WordCount, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    returns = threading.Event()

    def split(line: str) -> list[str]:
        if line == "hang":
            returns.wait(SECONDS)
        return line.split()

    words.settings |= {"processing.guarantee": guarantee, "penstock.task.stuck.ms": 300, "commit.interval.ms": 100}
    host = words.host(split, until_end=False, make_membership=None)
    host.start(Listening())
    try:
        words.write("hang", "a")
        assert until(lambda: words.counts() == {"a": 1})
        words.write("", "a", "", "b")  # each second one is for the other task
        assert until(lambda: words.counts() == {"a": 2, "b": 1})
        assert "has not returned for 300 ms" in caplog.text
        assert host.close(30_000)
    finally:
        returns.set()
        host.close(30_000)


def test_a_standby_task_is_taken_over_without_a_restore(words: WordCount, tmp_path: Path) -> None:
    words.settings |= {"processing.guarantee": "exactly_once_v2", "num.standby.replicas": 1}
    words.settings["heartbeat.interval.ms"] = 100
    options: dict[str, Any] = {"until_end": False, "make_membership": None}
    first, second, restores = words.host(**options), None, Restores()
    first.start(Listening())
    try:
        words.write("a b", "a c")
        assert until(lambda: words.counts() == {"a": 2, "b": 1, "c": 1})
        words.settings["state.dir"] = str(tmp_path / "other")
        second = words.host(restore_listener=restores, **options)
        second.start(Listening())
        changelog = f"{words.app}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"

        def follows(host: ThreadsHost) -> bool:
            places = [TopicPartition(changelog, number) for number in range(2)]
            ends = {f"1_{place.partition}": end for place, end in words.admin.end_offsets(places).items()}
            found = host.statistics().standbys
            return len(found) == 1 and found.items() <= ends.items()

        both = second
        assert until(lambda: follows(first) and follows(both))
        active = StoreQueryParameters.from_name_and_type(words.store, QueryableStoreTypes.key_value_store())
        stale = active.enable_stale_stores()
        for host in (first, both):
            queries = host.queries()
            assert until(lambda queries=queries: dict(queries.store(stale).all()) == {"a": 2, "b": 1, "c": 1})
            lags = queries.all_local_store_partition_lags
            assert until(lambda lags=lags: [each.offset_lag for each in lags()[words.store].values()] == [0, 0])

        def parts() -> list[tuple[str, int]]:
            try:
                return sorted(entry for host in (first, both) for entry in host.queries().store(active).all())
            except InvalidStateStoreError:  # while tasks move
                return []

        assert until(lambda: parts() == [("a", 2), ("b", 1), ("c", 1)])
        before = sum(restores.restored.values())
        assert first.close(60_000)
        words.write("a b", "a c")
        assert until(lambda: words.counts() == {"a": 4, "b": 2, "c": 2})
        assert sum(restores.restored.values()) == before
        assert until(lambda: both.statistics().standbys == {})
    finally:
        assert first.close(60_000)
        assert second is None or second.close(60_000)


def test_topics_that_a_pattern_matches_later_are_read_too(words: WordCount) -> None:
    words.settings["metadata.max.age.ms"] = 0
    builder = StreamsBuilder()
    builder.stream(re.compile(f"{words.source}.*")).to(words.sink)
    host = ThreadsHost(built_topology(builder.build(), words.app), words.config(), make_membership=AloneMembership)
    listening = Listening()
    host.start(listening)
    try:
        words.write("a")
        assert until(lambda: sum(host.statistics().processed.values()) == 1)
        words.admin.create_topics([NewTopic(f"{words.source}-new", 1)])
        producer = PlainProducer(words.config())
        producer.send(f"{words.source}-new", None, b"b", 0)
        producer.close()
        assert until(lambda: host.statistics().records_in == 2)
        assert "rebalancing" in listening.told
    finally:
        assert host.close(60_000)
    assert listening.told[-1] == "stopped"


@pytest.mark.one_broker
def test_of_two_instances_one_knows_first_that_a_topic_has_more_partitions(words: WordCount) -> None:
    words.settings |= {"heartbeat.interval.ms": 100, "metadata.max.age.ms": 3_600_000}
    topology = built_topology(copying(words), words.app)
    hosts: list[ThreadsHost] = []
    told: list[Listening] = []
    try:
        for number in range(2):
            looks = {"metadata.max.age.ms": 0} if number else {}
            config = words.config(**looks, **{"state.dir": f"{words.settings['state.dir']}-{number}"})
            hosts.append(ThreadsHost(topology, config))
            told.append(Listening())
            hosts[-1].start(told[-1])
            assert told[-1].running.wait(SECONDS)
        words.admin.create_partitions(words.source, 4)
        producer = PlainProducer(words.config())
        for partition in range(4):
            producer.send(words.source, None, b"a", partition)
        producer.close()
        assert until(lambda: sum(host.statistics().records_in for host in hosts) >= 4)
        assert until(lambda: len(words.values()) >= 4)
    finally:
        for host in hosts:
            assert host.close(60_000)
    assert [listening.error for listening in told] == [None, None]


def test_a_source_topic_that_is_deleted_ends_the_host_and_is_named(words: WordCount) -> None:
    words.settings["metadata.max.age.ms"] = 0
    host, listening = words.host(until_end=False), Listening()
    host.start(listening)
    try:
        assert listening.running.wait(SECONDS)
        words.admin.delete_topics([words.source])
        assert listening.ended.wait(SECONDS)
        assert isinstance(listening.error, MissingSourceTopicError)
        assert words.source in str(listening.error)
        assert listening.told[-2:] == ["failure", "error"]
    finally:
        assert host.close(60_000)


def test_a_position_that_a_partition_does_not_have_is_reset(words: WordCount) -> None:
    words.write("a b", "a")
    places = [TopicPartition(words.source, number) for number in range(2)]
    words.admin.commit_offsets(words.app, {places[0]: OffsetAndMetadata(100), places[1]: OffsetAndMetadata(1)})
    host, listening = words.host(until_end=False), Listening()
    host.start(listening)
    try:
        assert until(lambda: words.counts() == {"a": 1, "b": 1})
        words.write("a", "c")
        assert until(lambda: words.counts() == {"a": 2, "b": 1, "c": 1})
    finally:
        assert host.close(60_000)
    assert listening.told == ["running", "stopped"]


def test_a_position_that_a_partition_does_not_have_ends_the_host_where_nothing_resets_it(words: WordCount) -> None:
    words.settings["auto.offset.reset"] = "none"
    places = [TopicPartition(words.source, number) for number in range(2)]
    words.admin.commit_offsets(words.app, dict.fromkeys(places, OffsetAndMetadata(100)))
    host, listening = words.host(until_end=False), Listening()
    host.start(listening)
    try:
        assert listening.ended.wait(SECONDS)
        assert f"topic {words.source}, partition" in str(listening.error)
        assert "the offset reset of its source is none" in str(listening.error)
        assert "on threads with its group's offsets" in str(listening.error)
    finally:
        assert host.close(60_000)


@pytest.mark.one_broker
@pytest.mark.parametrize(("operation", "members"), [(DEFAULT, 0), (LEAVE, 0), (REMAIN, 1)])
def test_a_closed_instance_leaves_its_group_unless_it_is_to_remain(
    words: WordCount, operation: GroupMembershipOperation, members: int
) -> None:
    host, listening = words.host(until_end=False, make_membership=None), Listening()
    host.start(listening)
    assert listening.running.wait(SECONDS)
    assert host.close(60_000, operation)
    assert until(lambda: len(words.admin.describe_group(words.app).members) == members)


@pytest.mark.one_broker
@pytest.mark.parametrize("operation", GroupMembershipOperation)
def test_an_instance_that_is_closed_while_it_is_set_up_leaves_its_group_unless_it_is_to_remain(
    words: WordCount, operation: GroupMembershipOperation
) -> None:
    class ClosedMeanwhile(AloneMembership):
        def __init__(self, *arguments: Any) -> None:
            host.close(0, operation)
            super().__init__(*arguments)

        def leave(self, operation: GroupMembershipOperation) -> None:
            left.append(operation)

    left: list[GroupMembershipOperation] = []
    host, listening = words.host(until_end=False, make_membership=ClosedMeanwhile), Listening()
    host.start(listening)
    assert listening.ended.wait(SECONDS)
    assert left == [operation]


@pytest.mark.one_broker
def test_what_a_thread_tells_an_instance_that_has_ended_does_not_reach_the_next_one(words: WordCount) -> None:
    class Outliving(AloneMembership):
        def __init__(self, layout: Layout, config: StreamsConfig, post: Post) -> None:
            posts.append(post)
            super().__init__(layout, config, post)

    posts: list[Post] = []
    host, listening = words.host(until_end=False, make_membership=Outliving), Listening()
    host.start(listening)
    assert listening.running.wait(SECONDS)
    listening.running.clear()
    host.rebalance("a test")
    assert listening.running.wait(SECONDS)
    posts[0](v.Failed(RuntimeError("too late")))
    assert host.close(60_000)
    assert (len(posts), listening.error) == (2, None)


def test_a_rebalance_that_fails_is_tried_again_where_the_handler_says_so(words: WordCount) -> None:
    words.settings |= {"metadata.max.age.ms": 0, "penstock.restart.max.attempts": 1_000}
    words.settings["penstock.restart.backoff.max.ms"] = 100
    host, listening = words.host(until_end=False), Listening(StreamThreadExceptionResponse.REPLACE_THREAD)
    host.start(listening)
    try:
        assert listening.running.wait(SECONDS)
        words.admin.delete_topics([words.source])
        assert until(lambda: "failure" in listening.told)
        words.admin.create_topics([NewTopic(words.source, 2)])
        words.write("a b", "a")
        assert until(lambda: words.counts() == {"a": 2, "b": 1})
    finally:
        assert host.close(60_000)
    assert listening.told[-1] == "stopped"


def test_partitions_that_do_not_fit_the_internal_topics_leave_the_tasks_as_they_are_and_refuse_the_next_start(
    words: WordCount, caplog: pytest.LogCaptureFixture
) -> None:
    words.settings["metadata.max.age.ms"] = 0
    host, listening = words.host(until_end=False), Listening()
    host.start(listening)
    try:
        assert listening.running.wait(SECONDS)
        words.admin.create_partitions(words.source, 3)

        def refusals() -> list[str]:
            return [message for message in caplog.messages if "the tasks stay as they are" in message]

        assert until(lambda: len(refusals()) > 0)
        words.write("a b", "a")
        assert until(lambda: words.counts() == {"a": 2, "b": 1})
        assert listening.told == ["running"]
        [refusal] = refusals()  # at one look of many
        assert f"topic {words.source} has 3 partitions, and had 2" in refusal
        assert "expected: 3; actual: 2" in refusal
    finally:
        assert host.close(60_000)
    with pytest.raises(StreamsError, match=r"Existing internal topic .* expected: 3; actual: 2"):
        words.host().start(Listening())


class Failures(Listening):
    """Keeps the errors about which the handler is asked, and has tasks replaced."""

    def __init__(self) -> None:
        super().__init__(StreamThreadExceptionResponse.REPLACE_THREAD)
        self.failures: list[str] = []

    def on_failure(self, error: BaseException) -> StreamThreadExceptionResponse:
        self.failures.append(str(error))
        return super().on_failure(error)


def test_a_topic_that_is_created_again_with_partitions_that_do_not_fit_is_an_error(
    words: WordCount, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_created = threading.Event()

    class Watch(TopicWatch):
        """Sees nothing until the topic is there again."""

        def changes(self, used: UsedTopics) -> TopicChanges | None:
            return super().changes(used) if is_created.is_set() else None

    monkeypatch.setattr(threads_host, "TopicWatch", Watch)
    words.settings |= {"metadata.max.age.ms": 0, "penstock.restart.max.attempts": 1_000}
    words.settings["penstock.restart.backoff.max.ms"] = 100
    host, listening = words.host(until_end=False), Failures()
    host.start(listening)
    try:
        assert listening.running.wait(SECONDS)
        words.admin.delete_topics([words.source])
        assert until(lambda: words.source not in words.admin.topics())
        words.admin.create_topics([NewTopic(words.source, 3)])
        is_created.set()
        assert until(lambda: any("expected: 3; actual: 2" in failure for failure in listening.failures))
    finally:
        assert host.close(60_000)


class Refusing(PartitionGrouper):
    """Makes the usual tasks of two partitions, and fails for more."""

    def group(self, topics: Mapping[str, int]) -> Sequence[Collection[TopicPartition]]:
        if max(topics.values()) > 2:
            raise ValueError("more than two partitions")
        return super().group(topics)


def test_the_handler_is_asked_about_a_grouper_that_fails_for_new_partitions(words: WordCount) -> None:
    words.settings |= {"metadata.max.age.ms": 0, "partition.grouper": Refusing}
    host, listening = words.host(until_end=False), Listening()
    host.start(listening)
    try:
        assert listening.running.wait(SECONDS)
        words.admin.create_partitions(words.source, 3)
        assert listening.ended.wait(SECONDS)
        assert "more than two partitions" in str(listening.error)
        assert listening.told[-2:] == ["failure", "error"]
    finally:
        assert host.close(60_000)


def test_a_reset_makes_the_next_start_a_first_one(words: WordCount) -> None:
    words.write("a b")
    words.run_to_end(words.host())
    host, plan = words.host(), plan_reset(words.topology(), words.config())
    changelog, repartition = sorted(topic for topic in words.admin.topics() if topic.startswith(f"{words.app}-"))
    assert (plan.groups, plan.topics) == ((words.app,), (changelog, repartition))
    assert plan.state_directory is not None
    host.reset()
    assert until(lambda: plan_reset(words.topology(), words.config()).is_empty)
    host.reset()  # there is nothing left to delete
    words.run_to_end(words.host())
    assert words.counts() == {"a": 1, "b": 1}


def test_a_missing_source_topic_is_named_before_anything_starts(words: WordCount) -> None:
    words.admin.delete_topics([words.source])
    assert until(lambda: words.source not in words.admin.topics())
    host = words.host()
    with pytest.raises(MissingSourceTopicError, match=words.source):
        host.start(Listening())
    host.clean_up()


class LoadingAdmin(GroupAdmin):
    """A coordinator that is loading answers its first requests for committed offsets."""

    requests = 0

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        LoadingAdmin.requests += 1
        if LoadingAdmin.requests < 3:
            raise RetriableError("Request failed: COORDINATOR_LOAD_IN_PROGRESS.")
        return super().committed_offsets(group, partitions, stable)


def test_a_start_waits_for_a_coordinator_that_is_loading(words: WordCount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_host, "GroupAdmin", LoadingAdmin)
    monkeypatch.setattr(LoadingAdmin, "requests", 0)
    words.write("a b a")
    words.run_to_end(words.host())
    assert LoadingAdmin.requests >= 3
    assert words.counts() == {"a": 2, "b": 1}
