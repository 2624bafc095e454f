"""When a run to the end of the topics ends: with all that follows from the input, in the whole group."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.api import OffsetAndMetadata
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Repartitioned
from penstock.errors import UnstableOffsetCommitError
from penstock.host.api import HostStatistics
from penstock.host.supervision.progress import late_end
from penstock.host.threads import vocabulary as v
from penstock.host.threads.bounded_consumer import BoundedConsumer
from penstock.host.threads.phases import Phase
from penstock.host.threads.unread import described
from penstock.host.threads.vocabulary import Unread
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.serdes import Serdes
from tests.host.threads.inline import InlineInstance
from tests.host.threads.test_instance import IN, Play

TOPIC = "app-moved-repartition"
MOVED = TopicPartition(TOPIC, 0)


def moving() -> Topology:
    """Return a topology with a repartition topic, and a second one behind it."""
    builder = StreamsBuilder()
    moved = builder.stream("in").select_key(lambda key, value: value).repartition(Repartitioned.as_("moved"))
    moved.select_key(lambda key, value: key).repartition(Repartitioned.as_("again")).to("out")
    return builder.build()


def records(*values: str) -> RecordBatch:
    return RecordBatch.of([(value.encode(), value.encode(), 0, 0, ()) for value in values])


def sent(play: Play) -> list[str]:
    out = TopicPartition("out", 0)
    end = play.broker.end(out)
    return [Serdes.string().deserialize("out", value) for value in play.broker.read(out, 0, end).values] if end else []


def has_ended(instance: InlineInstance) -> bool:
    return instance.instance.phase is Phase.ENDED


@pytest.mark.parametrize("exactly_once", [False, True])
def test_what_an_earlier_run_has_left_in_a_repartition_topic_is_processed(exactly_once: bool) -> None:
    play = Play()
    play.write("a", "b")
    play.broker.create_topic(TOPIC, 1)
    play.broker.append([PartitionBatch(TOPIC, 0, records("a", "b"))])
    play.broker.committed[IN] = OffsetAndMetadata(2)
    instance = play.instance(moving(), commit_interval_ms=10_000, until={IN: 2}, exactly_once=exactly_once)
    instance.run()
    assert has_ended(instance)
    assert sent(play) == ["a", "b"]
    assert play.broker.committed[MOVED].offset == 2


@settings(max_examples=25)
@given(
    before=st.integers(0, 4),
    waiting=st.integers(0, 4),
    split=st.sets(st.sampled_from([TaskId(n, 0) for n in range(3)])),
    at_once=st.integers(1, 3),
    exactly_once=st.booleans(),
)
def test_instances_end_when_all_of_them_have_committed_everything(
    before: int, waiting: int, split: set[TaskId], at_once: int, exactly_once: bool
) -> None:
    play = Play()
    play.broker.create_topic(TOPIC, 1)
    play.write(*(f"done {n}" for n in range(before)), *(f"new {n}" for n in range(3)))
    play.broker.append([PartitionBatch(TOPIC, 0, records(*(f"waits {n}" for n in range(waiting))))])
    play.broker.committed[IN] = OffsetAndMetadata(before)
    options: dict[str, Any] = {
        "commit_interval_ms": 10_000,
        "until": {IN: before + 3},
        "records_at_once": at_once,
        "exactly_once": exactly_once,
    }
    rest = {TaskId(n, 0) for n in range(3)} - split
    instances = [play.instance(moving(), tasks=tasks, **options) for tasks in (split, rest)]
    for _ in range(20):
        for instance in instances:
            if not has_ended(instance):
                instance.run()
                assert not has_ended(instance) or len(sent(play)) == 3 + waiting
        play.clock.advance(100)
    assert all(map(has_ended, instances))
    assert Counter(sent(play)) == Counter([*(f"waits {n}" for n in range(waiting)), *(f"new {n}" for n in range(3))])


def test_offsets_without_a_record_at_the_end_are_committed_and_not_waited_for() -> None:
    play = Play()
    play.write("a")
    instance = play.instance(commit_interval_ms=10_000, until={IN: 4})
    instance.run()
    assert not has_ended(instance)
    instance.tell(v.EndsReached({IN: 4}))
    instance.run()
    assert has_ended(instance)
    assert play.broker.committed[IN].offset == 4


def test_records_that_wait_are_not_committed_with_the_offsets_behind_them() -> None:
    play = Play()
    instance = play.instance(commit_interval_ms=10_000)
    instance.run()
    instance.tell(v.PauseRequested())
    play.write("a", "b")
    instance.run()
    instance.tell(v.EndsReached({IN: 4}))
    instance.close()
    assert play.broker.committed[IN].offset == 0


def test_an_end_that_brokers_do_not_tell_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play()
    play.write("a")
    committed, refusals = play.broker.committed_offsets, [5]

    def refusing(group: str, partitions: Any, stable: bool = True) -> Any:
        if not stable and refusals[0]:
            refusals[0] -= 1
            raise UnstableOffsetCommitError("a transaction is about to commit")
        return committed(group, partitions, stable)

    monkeypatch.setattr(play.broker, "committed_offsets", refusing)
    instance = play.instance(commit_interval_ms=10_000, until={IN: 1})
    for _ in range(9):
        instance.run()
        assert not has_ended(instance) or not refusals[0]
        play.clock.advance(100)
    assert has_ended(instance)


def test_a_run_that_is_late_names_the_partitions_and_the_open_transaction() -> None:
    found = {IN: Unread(3, 9, 9), MOVED: Unread(1, 4, 2)}
    assert late_end("app", 5, HostStatistics(lag=1, unread=described(found))) == (
        "app did not reach the end of its inputs in 5 ms: in, partition 0: committed up to offset 3 of 9; "
        f"{TOPIC}, partition 0: committed up to offset 1 of 4 (a transaction is open from offset 2 on)."
    )
    assert late_end("app", 5, HostStatistics(lag=2)).endswith("in 5 ms: 2 records not read yet.")


@given(
    end=st.integers(0, 12),
    offsets=st.lists(st.integers(0, 20), unique=True).map(sorted),
    cuts=st.lists(st.integers(0, 20)).map(sorted),
)
def test_a_bounded_consumer_returns_what_is_before_the_end_and_tells_when_it_is_reached(
    end: int, offsets: list[int], cuts: list[int]
) -> None:
    polls = [
        [(IN, RecordBatch.of([(None, b"", 0, offset, ()) for offset in part]))]
        for start, stop in pairwise([0, *cuts, 21])
        if (part := [offset for offset in offsets if start <= offset < stop])
    ]
    paused: list[TopicPartition] = []
    consumer: Any = SimpleNamespace(
        poll=lambda *_: polls.pop(0), pause=paused.extend, reached_ends=dict, known_ends=lambda _: {IN: 21}
    )
    bounded = BoundedConsumer(consumer, {IN: end})
    found: list[int] = []
    while polls:
        found += [int(offset) for _, batch in bounded.poll(0, 9) for offset in batch.offsets]
    assert found == [offset for offset in offsets if offset < end]
    assert bounded.known_ends([IN]) == {IN: end}
    is_behind = any(offset >= end for offset in offsets)
    assert bounded.reached_ends() == ({IN: end} if is_behind else {})
    assert paused == ([IN] if is_behind else [])
