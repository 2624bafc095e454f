"""Tasks that feed a repartition topic read history together in time, in whatever order it arrives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Repartitioned
from penstock.host.deployment.layout import Layout
from penstock.host.threads import vocabulary as v
from penstock.host.threads.active_task import ActiveTaskState
from penstock.host.threads.phases import Phase
from penstock.host.threads.task_manager import BufferLimits, TaskManager
from penstock.host.threads.time_rounds import (
    MOST_ROUND_MS,
    MOST_SILENT_MS,
    TimeAlignment,
    aligned_partitions,
    awaited_topics,
    feeding_topics,
)
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology, built_topology
from penstock.processor.timestamps import log_and_skip_on_invalid_timestamp
from penstock.record import NO_TIMESTAMP, PartitionBatch, RecordBatch, TopicPartition
from penstock_broker.common.clock import MockClock
from tests.host.threads import test_instance
from tests.host.threads.inline import InlineInstance
from tests.host.threads.memory_broker import MemoryBroker

CONFIG = StreamsConfig(
    {**test_instance.CONFIG.given(), "default.timestamp.extractor": log_and_skip_on_invalid_timestamp}, environment={}
)
NOW = 10**9
SKEW_MS = 3_600_000
HISTORY = NOW - 2 * SKEW_MS
MOVED = "app-moved-repartition"


def moving(partitions: int = 1, again: bool = False) -> Topology:
    """Return a topology with a repartition topic, and perhaps a second one behind it."""
    builder = StreamsBuilder()
    moved = builder.stream("in").repartition(Repartitioned.as_("moved").with_number_of_partitions(partitions))
    (moved.repartition(Repartitioned.as_("last").with_number_of_partitions(1)) if again else moved).to("out")
    return builder.build()


class Fetching(InlineInstance):
    """An instance to which records come of one partition at a time. order: which of those that have more, and how many
    records; then one of each in turn."""

    def __init__(self, *args: Any, order: list[tuple[int, int]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._order = iter(order)

    def _poll(self) -> None:
        ends = {partition: self.broker.end(partition) for partition in self._following}
        behind = [partition for partition in sorted(ends) if self._following[partition] < ends[partition]]
        choice = next(self._order, None) if behind else None
        if choice is None:
            super()._poll()
            return
        partition, start = behind[choice[0] % len(behind)], self._following[behind[choice[0] % len(behind)]]
        self._following[partition] = stop = min(start + choice[1], ends[partition])
        self._events.append(v.EndsKnown(ends))
        self._events.append(v.Arrived(partition, self.broker.read(partition, start, stop)))


def records(times: list[int]) -> RecordBatch:
    return RecordBatch.of([(str(time).encode(), b"x", time, 0, ()) for time in times])


def run(
    inputs: list[list[int]], order: list[tuple[int, int]], topology: Topology | None = None, **options: Any
) -> MemoryBroker:
    """Process partitions with records of these times (ms) to their ends, and return what is in all topics then."""
    broker = MemoryBroker({"in": len(inputs), "out": 1})
    broker.append([PartitionBatch("in", number, records(times)) for number, times in enumerate(inputs) if times])
    until = {TopicPartition("in", number): len(times) for number, times in enumerate(inputs)}
    clock = MockClock(NOW)
    options = {"records_at_once": 5, **options}
    instance = Fetching(topology or moving(), CONFIG, broker, clock, order=order, until=until, **options)
    for _ in range(100):
        instance.run()
        if instance.instance.phase is Phase.ENDED:
            return broker
        clock.advance(100)
    raise AssertionError(f"It does not end: {instance.instance.phase}")


def times_of(broker: MemoryBroker, topic: str = MOVED, partition: int = 0) -> list[int]:
    place = TopicPartition(topic, partition)
    return broker.read(place, 0, broker.end(place)).timestamps.tolist() if broker.end(place) else []


ORDERS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 50)), max_size=40)
OLD = st.integers(0, HISTORY)
TIMES = st.one_of(OLD, st.integers(HISTORY, NOW), st.integers(NOW, 2 * NOW), st.just(NO_TIMESTAMP))


@settings(max_examples=40)
@given(
    inputs=st.lists(st.lists(OLD, max_size=60).map(sorted), min_size=1, max_size=4),
    order=ORDERS,
    exactly_once=st.booleans(),
    commit_interval_ms=st.sampled_from([0, 10_000]),
)
def test_history_is_in_the_order_of_its_time_whatever_is_fetched_first(
    inputs: list[list[int]], order: list[tuple[int, int]], exactly_once: bool, commit_interval_ms: int
) -> None:
    broker = run(inputs, order, exactly_once=exactly_once, commit_interval_ms=commit_interval_ms)
    assert times_of(broker) == sorted(time for times in inputs for time in times)


@settings(max_examples=25)
@given(inputs=st.lists(st.lists(TIMES, max_size=15), min_size=2, max_size=4), order=ORDERS)
def test_no_task_waits_for_ever_whatever_the_times_are(inputs: list[list[int]], order: list[tuple[int, int]]) -> None:
    found = times_of(run(inputs, order, commit_interval_ms=10_000))
    assert sorted(found) == sorted(time for times in inputs for time in times if time != NO_TIMESTAMP)


@settings(max_examples=10)
@given(order=ORDERS)
def test_two_repartition_topics_one_behind_the_other_have_history_in_order(order: list[tuple[int, int]]) -> None:
    inputs = [[HISTORY - 1_000 + 10 * n + part for n in range(30)] for part in range(2)]
    broker = run(inputs, order, moving(2, again=True), exactly_once=True, commit_interval_ms=10_000)
    assert times_of(broker, "app-last-repartition") == sorted(time for times in inputs for time in times)


@settings(max_examples=15)
@given(order=ORDERS, exactly_once=st.booleans())
def test_a_table_waits_for_history_that_comes_through_a_repartition_topic(
    order: list[tuple[int, int]], exactly_once: bool
) -> None:
    builder = StreamsBuilder()
    table = builder.table("table")
    moved = builder.stream("in").select_key(lambda key, value: "k")
    moved = moved.repartition(Repartitioned.as_("moved").with_number_of_partitions(1))
    moved.join(table, lambda one, other: f"{one} {other}").to("out")
    broker = MemoryBroker({"in": 2, "table": 1, "out": 1})
    told = [(b"k", str(n).encode(), HISTORY + 10 * n, 0, ()) for n in range(40)]
    broker.append([PartitionBatch("table", 0, RecordBatch.of(told[::4]))])
    later = [(key, value, time + 1, 0, ()) for key, value, time, *_ in told]
    broker.append([PartitionBatch("in", part, RecordBatch.of(later[part::2])) for part in range(2)])
    until = {TopicPartition("in", 0): 20, TopicPartition("in", 1): 20, TopicPartition("table", 0): 10}
    options: dict[str, Any] = {"commit_interval_ms": 10_000, "records_at_once": 5, "exactly_once": exactly_once}
    instance = Fetching(builder.build(), CONFIG, broker, MockClock(NOW), order=order, until=until, **options)
    instance.run()
    out = TopicPartition("out", 0)
    found = [value.decode() for value in broker.read(out, 0, broker.end(out)).values]
    assert found == [f"{n} {n - n % 4}" for n in range(40)]


def test_no_task_waits_for_what_comes_back_to_it() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    joined = left.join(right, lambda one, other: f"{one}{other}", foreign_key_extractor=lambda value: value)
    joined.to_stream().repartition(Repartitioned.as_("moved")).to("out")
    built = built_topology(builder.build(), "app")
    feeding = feeding_topics(built, CONFIG)
    waited_for = frozenset[str]().union(*awaited_topics(built, feeding).values())
    assert len(frozenset[str]().union(*feeding.values())) == 3
    assert waited_for == {MOVED}


def test_records_of_one_partition_keep_their_order() -> None:
    broker = run([[50, 10, 60], [20, 55, 57]], [], records_at_once=3)
    assert times_of(broker) == [20, 50, 10, 55, 57, 60]


class Manager:
    """The tasks of three partitions that feed a repartition topic, one worker for each."""

    def __init__(self, **settings: Any) -> None:
        config = StreamsConfig({**CONFIG.given(), **settings}, environment={})
        skew = config["penstock.max.skew.ms"]
        alignment = TimeAlignment({0: frozenset([MOVED])}, {}, skew) if skew else None
        self.tasks = TaskManager(config, BufferLimits(10_000, 1 << 20), lambda task: task.partition, alignment)
        self.places = [TopicPartition("in", number) for number in range(3)]
        for place in self.places:
            task = self.tasks.add(TaskId(0, place.partition), [place])
            task.state, task.positions = ActiveTaskState.RUNNING, {place: 0}
        self.tasks.know_ends(dict.fromkeys(self.places, 0))

    def arrive(self, number: int, *times: int) -> None:
        place = self.places[number]
        batch = records(list(times))
        batch.offsets = np.arange(len(times)) + self.tasks[TaskId(0, number)].positions[place]
        self.tasks.know_ends({place: int(batch.offsets[-1]) + 1})
        self.tasks.arrived(v.Arrived(place, batch))

    def runs(self, now: int) -> dict[int, list[int]]:
        """Return the times of the records that tasks are given now, by their number."""
        found = {}
        while (action := self.tasks.next_run(now)) is not None:
            found[action.task.partition] = [time for _, batch in action.records for time in batch.timestamps.tolist()]
        return found

    def ran(self, number: int) -> None:
        self.tasks[TaskId(0, number)].ran(v.Ran(TaskId(0, number)))
        self.tasks.alignment.sends(TaskId(0, number), ())


def test_a_task_waits_for_one_that_is_behind_only_while_that_reads_history() -> None:
    manager = Manager()
    manager.arrive(0, HISTORY, HISTORY + 50)
    manager.arrive(1, HISTORY + 20)
    manager.tasks.know_ends({manager.places[0]: 9})  # of which more is to come
    manager.arrive(2, NOW)
    assert manager.runs(NOW) == {0: [HISTORY, HISTORY + 50], 1: [HISTORY + 20]}
    assert manager.runs(NOW) == {}
    for number in (0, 1):
        manager.ran(number)
    assert manager.runs(NOW) == {}  # the rest of the first one may be older
    manager.arrive(0, NOW - SKEW_MS)
    assert manager.runs(NOW) == {0: [NOW - SKEW_MS], 2: [NOW]}


def test_without_a_skew_tasks_wait_for_nothing() -> None:
    manager = Manager(**{"penstock.max.skew.ms": 0})
    manager.arrive(0, HISTORY, NOW)
    manager.arrive(1, NOW)
    assert manager.runs(NOW) == {0: [HISTORY, NOW], 1: [NOW]}


@pytest.mark.parametrize("what", ["hangs", "gets nothing"])
def test_a_task_that_does_not_get_on_holds_up_no_other_for_long(what: str) -> None:
    manager = Manager()
    manager.arrive(1, HISTORY + 5, HISTORY + 10)
    if what == "hangs":
        manager.arrive(0, HISTORY)
        manager.tasks.know_ends({manager.places[0]: 9})
        assert manager.runs(NOW) == {0: [HISTORY]}
        manager.arrive(0, HISTORY + 1)
    manager.tasks.know_ends({manager.places[0]: 9})
    assert manager.runs(NOW) == {}
    due, now = manager.tasks.next_due_ms(), NOW
    while due is not None and not (found := manager.runs(now)):
        now, due = due, manager.tasks.next_due_ms()
    assert 1 in found
    assert now - NOW <= MOST_SILENT_MS + 2 * MOST_ROUND_MS


class Holding(InlineInstance):
    """An instance whose tasks do not answer a run with records."""

    def _do(self, action: v.Action) -> None:
        if not (isinstance(action, v.RunTask) and action.records):
            super()._do(action)


def test_a_commit_that_waits_for_a_round_is_due_at_the_end_of_the_round() -> None:
    broker = MemoryBroker({"in": 2, "out": 1})
    broker.append([PartitionBatch("in", number, records([HISTORY])) for number in range(2)])
    clock = MockClock(NOW)
    instance = Holding(moving(), CONFIG, broker, clock, commit_interval_ms=100)
    instance.run()
    clock.advance(MOST_ROUND_MS - 1)
    instance.run()  # no time that has passed is due, or it would not end
    due = instance.instance.next_due_ms()
    assert (due, instance.instance.phase) == (NOW + MOST_ROUND_MS, Phase.RUNNING)
    clock.advance(1)
    instance.run()
    assert instance.instance.phase is Phase.QUIESCING


def test_topics_with_times_of_their_own_are_read_as_they_come() -> None:
    def own(record: Any, partition_time: int) -> int:
        return 0

    def layout(settings: Mapping[str, Any]) -> Layout:
        config = StreamsConfig({**CONFIG.given(), **settings}, environment={})
        return InlineInstance(moving(), config, MemoryBroker({"in": 2, "out": 1}), MockClock(NOW)).layout

    assert aligned_partitions(layout({})) == {TopicPartition("in", 0), TopicPartition("in", 1)}
    assert aligned_partitions(layout({"penstock.max.skew.ms": 0})) == frozenset()
    assert aligned_partitions(layout({"default.timestamp.extractor": own})) == frozenset()
