"""Which inputs tasks wait for, and what is not read meanwhile."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from penstock import Calls, Consumed, Grouped, Joined, JoinWindows, Serdes, StreamJoined, StreamsBuilder
from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.planner.lagging import (
    answers_of,
    held_bytes,
    lagging_inputs,
    lagging_partitions,
    unread_partitions,
    waited_partitions,
)
from penstock.host.spark.protocol.placement import Placement, place
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
PAIRS = Grouped.with_(key_serde=STRING, value_serde=STRING)
JOINED = Joined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
BOUND = 1_000


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def grouped_and_joined() -> Placement:
    """`a`, by another key, joined with the table `c`: the second level reads a repartition topic and `c`."""
    builder = StreamsBuilder()
    rekeyed = builder.stream("a", TEXT).select_key(lambda _, value: value)
    rekeyed.join(builder.table("c", TEXT), lambda one, other: one + other, joined=JOINED).to("out")
    return place(builder.build().build("app"), {"a": 2, "c": 2, "out": 1}, parallelism=2)


def waits(
    placement: Placement, task: TaskId, *lagging: TopicPartition, held: dict[TopicPartition, int] | None = None
) -> set[TopicPartition]:
    return set(lagging_inputs(placement, task, set(lagging), held or {}, BOUND))


def test_a_task_waits_for_its_own_partition_and_for_all_that_feeds_its_repartition_topic() -> None:
    placement = grouped_and_joined()
    (repartitioned,) = {tp.topic for tp in placement.groups[TaskId(1, 0)]} - {"c"}
    task = TaskId(1, 0)
    assert waits(placement, task) == set()
    assert waits(placement, task, at("c", 1)) == set()
    assert waits(placement, task, at("c", 0)) == {at("c", 0)}
    assert waits(placement, task, at("a", 1)) == {at(repartitioned, 0)}
    assert waits(placement, TaskId(0, 1), at("a", 1), at("c", 1)) == set()  # its only partition


def test_a_task_that_holds_too_much_waits_for_no_repartition_topic() -> None:
    placement = grouped_and_joined()
    (repartitioned,) = {tp.topic for tp in placement.groups[TaskId(1, 0)]} - {"c"}
    held = {at("c", 0): BOUND + 1}
    assert waits(placement, TaskId(1, 0), at("a", 1), held=held) == set()
    assert waits(placement, TaskId(1, 1), at("a", 1), held=held) == {at(repartitioned, 1)}
    assert waits(placement, TaskId(1, 0), at("c", 0), held={at(repartitioned, 0): BOUND + 1}) == {at("c", 0)}


def test_what_comes_from_one_topic_on_two_ways_is_not_waited_for() -> None:
    builder = StreamsBuilder()
    source = builder.stream("a", TEXT)
    left, right = source.select_key(lambda _, v: v), source.select_key(lambda k, _: k)
    joined = StreamJoined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
    left.join(right, lambda x, y: x + y, JoinWindows.of_time_difference_with_no_grace(5), stream_joined=joined)
    placement = place(builder.build().build("app"), {"a": 2}, parallelism=2)
    assert len(placement.groups[TaskId(1, 0)]) == 2
    assert placement.awaitable[TaskId(1, 0)] == ()


def test_what_comes_back_in_a_loop_is_not_waited_for() -> None:
    builder = StreamsBuilder()
    orders, customers = builder.table("orders", TEXT), builder.table("customers", TEXT)
    orders.join(customers, lambda o, c: o + c, foreign_key_extractor=lambda order: order)
    placement = place(builder.build().build("app"), {"orders": 2, "customers": 2}, parallelism=2)
    assert len(placement.groups[TaskId(0, 0)]) == 2
    assert placement.awaitable[TaskId(0, 0)] == ()
    (requests,) = {tp.topic for tp in placement.groups[TaskId(1, 0)]} - {"customers"}
    assert waits(placement, TaskId(1, 0), at("orders", 1)) == {at(requests, 0)}


def test_a_partition_without_a_known_end_lags() -> None:
    positions = {at("a"): 3, at("b"): 3, at("c"): 3}
    assert lagging_partitions(positions, {at("a"): 3, at("b"): 4}) == {at("b"), at("c")}


def test_a_partition_of_which_too_much_waits_is_not_read_nor_what_feeds_it() -> None:
    placement = grouped_and_joined()
    (repartitioned,) = {tp.topic for tp in placement.groups[TaskId(1, 0)]} - {"c"}
    inputs = [at("a", 0), at("a", 1), at("c", 0), at("c", 1)]

    def unread(partition: TopicPartition, size: int) -> Set[TopicPartition]:
        manifest = manifest_of({"1_1": TaskEntry(carried=holding(partition, size))})
        return unread_partitions(placement, inputs, manifest, set(inputs), BOUND, frozenset())

    assert unread(at("c", 1), BOUND) == set()
    assert unread(at("c", 1), BOUND + 1) == {at("c", 1)}
    assert unread(at(repartitioned, 1), BOUND + 1) == {at("a", 0), at("a", 1)}


def test_what_a_task_with_records_in_hand_waits_for_and_what_feeds_it_comes_first() -> None:
    placement = grouped_and_joined()
    (repartitioned,) = {tp.topic for tp in placement.groups[TaskId(1, 0)]} - {"c"}
    inputs = [at("a", 0), at("a", 1), at("c", 0), at("c", 1)]

    def waited_for(**tasks: TopicPartition) -> tuple[Set[TopicPartition], Set[TopicPartition]]:
        entries = {task.strip("t"): TaskEntry(carried=holding(partition, 1)) for task, partition in tasks.items()}
        return waited_partitions(placement, inputs, manifest_of(entries))

    feeding = {at("a", 0), at("a", 1)}
    assert waited_for() == (set(), set())
    assert waited_for(t1_1=at(repartitioned, 1)) == ({at("c", 1)}, set())
    assert waited_for(t1_1=at("c", 1)) == (set(), feeding)
    assert waited_for(t1_0=at(repartitioned, 0), t1_1=at("c", 1)) == ({at("c", 0)}, feeding)


def test_a_partition_that_is_ahead_is_not_read_while_another_of_its_task_is() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"], TEXT).to("out")
    placement = place(builder.build().build("app"), {"a": 2, "b": 2, "out": 1}, parallelism=2)
    inputs = [at("a", 0), at("a", 1), at("b", 0), at("b", 1)]
    ahead = manifest_of({"0_0": TaskEntry(ahead=(at("a", 0),))})
    full = manifest_of({"0_0": TaskEntry(ahead=(at("a", 0),), carried=holding(at("b", 0), BOUND + 1))})
    assert unread_partitions(placement, inputs, ahead, set(inputs), BOUND, frozenset()) == {at("a", 0)}
    assert unread_partitions(placement, inputs, ahead, {at("a", 0), at("b", 1)}, BOUND, frozenset()) == set()
    assert unread_partitions(placement, inputs, full, set(inputs), BOUND, frozenset()) == {at("b", 0)}


def test_what_waits_is_read_from_the_manifest() -> None:
    tasks = {"1_0": TaskEntry(), "1_1": TaskEntry(carried=holding(at("c", 1), 9))}
    assert held_bytes(manifest_of(tasks)) == {at("c", 1): 9}


def holding(partition: TopicPartition, size: int) -> dict[str, Any]:
    places = {partition.topic: [[partition.partition, 0, size, 0]]}
    return {"id": "ab", "places": places, "held": [[*partition, size]], "sends": False}


def manifest_of(tasks: dict[str, TaskEntry]) -> Manifest:
    return Manifest("q", 1, 1, 0, 0, tasks)


async def ask(value: str) -> str:
    return value


def joined_and_asked() -> Placement:
    """`a` joined with the table `c`, and a call for each result."""
    builder = StreamsBuilder()
    joined = builder.stream("a", TEXT).join(builder.table("c", TEXT), lambda one, other: one + other, joined=JOINED)
    joined.map_values(ask, named="ask", calls=Calls(key_serde=STRING, value_serde=STRING)).to("out")
    return place(builder.build().build("app"), {"a": 2, "c": 2, "out": 1}, parallelism=2)


ANSWERS = "app-ask-answers"


def test_a_task_that_waits_for_answers_reads_nothing_else() -> None:
    placement = joined_and_asked()
    inputs = [at(topic, number) for topic in ("a", "c", ANSWERS) for number in range(2)]
    assert answers_of(placement, inputs) == {at(ANSWERS, 0), at(ANSWERS, 1)}
    manifest = Manifest("q", 1, 1, 0, 0, {})
    assert unread_partitions(placement, inputs, manifest, set(inputs), BOUND, {TaskId(0, 1)}) == {
        at("a", 1),
        at("c", 1),
    }


def test_no_partition_waits_for_answers() -> None:
    placement = joined_and_asked()
    inputs = [at(topic, 0) for topic in ("a", "c", ANSWERS)]
    assert waits(placement, TaskId(0, 0), *inputs) == {at("a"), at("c")}
    manifest = Manifest("q", 1, 1, 0, 0, {"0_0": TaskEntry("00", ahead=(at("a"),))})
    assert unread_partitions(placement, inputs, manifest, {at("a"), at(ANSWERS)}, BOUND, frozenset()) == set()
    assert unread_partitions(placement, inputs, manifest, {at("a"), at("c")}, BOUND, frozenset()) == {at("a")}
