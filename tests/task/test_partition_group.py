"""The order in which a task takes the records of its partitions, and when it waits."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Backoff, Calls, Consumed, Park, Produced, StreamsBuilder
from penstock.errors import StreamsError
from penstock.metrics.drop_reasons import Dropped, DropReason
from penstock.plan.topology import Topology
from penstock.processor.parked_requests import ParkedAction, ParkedRequest, ParkedRequestSerde
from penstock.processor.timestamps import use_partition_time_on_invalid_timestamp, wallclock_timestamp_extractor
from penstock.record import ConsumerRecord, RecordBatch, TopicPartition
from penstock.task.idling import NO_WAIT, InputWait
from penstock.task.priority_queue import PriorityQueue
from tests.task.calls import ANSWERS, STRING, add_answers, answer_to, calling, commit, service
from tests.task.topologies import batch_of, sent, task_of

Lanes = dict[tuple[str, int], list[int]]


TOPICS = "cab"
"""As the program reads them: of equal times, the first one begins."""


def forwarding_topology() -> Topology:
    """All topics go to one topic as they are, so that the output shows the order in which records were taken."""
    topology = Topology()
    for topic in TOPICS:
        topology.add_source(topic.upper(), topic)
    topology.add_sink("K", "out", "A", "B", "C")
    return topology


def by_heads(lanes: Lanes) -> list[str]:
    """Take heads one by one, the smallest timestamp first: of equal ones of topics as Kafka's queue gives them out, of
    lanes of a topic the first."""
    queues = {
        lane: [(time, f"{lane[0]}{lane[1]}-{place}") for place, time in enumerate(times)]
        for lane, times in lanes.items()
    }

    def first_lane(topic: str) -> tuple[str, int]:
        of_topic = (lane for lane, queue in queues.items() if lane[0] == topic and queue)
        return min(of_topic, key=lambda lane: (queues[lane][0][0], lane))

    waiting: PriorityQueue[tuple[int, str]] = PriorityQueue(itemgetter(0))
    for topic in sorted({lane[0] for lane, queue in queues.items() if queue}, key=TOPICS.index):
        waiting.offer((queues[first_lane(topic)][0][0], topic))
    taken = []
    while (head := waiting.poll()) is not None:
        topic = head[1]
        taken.append(queues[first_lane(topic)].pop(0)[1])
        if any(queue for lane, queue in queues.items() if lane[0] == topic):
            waiting.offer((queues[first_lane(topic)][0][0], topic))
    return taken


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(TOPICS), st.integers(0, 3)), st.lists(st.integers(0, 9), max_size=12), max_size=6
    )
)
def test_records_are_taken_by_the_smallest_head(lanes: Lanes) -> None:
    task = task_of(forwarding_topology())
    for (topic, lane), times in lanes.items():
        task.add_records(topic, 0, batch_of(*((None, f"{topic}{lane}-{p}", t) for p, t in enumerate(times))), lane)
    task.process()
    assert [value for _, _, value, _ in sent(task)] == by_heads(lanes)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("cb"), st.integers(0, 3)), st.lists(st.integers(0, 9), max_size=12), max_size=6
    ),
    st.integers(1, 5),
)
def test_records_come_in_the_same_order_if_a_full_store_of_calls_divides_them(lanes: Lanes, most: int) -> None:
    builder = StreamsBuilder()
    first, *others = (builder.stream(topic, Consumed.with_(STRING, STRING)) for topic in "cb")
    for each in others:
        first = first.merge(each)
    first.map_values(service, "call", calls=Calls(max_records=most)).to("out", Produced.with_(STRING, STRING))
    task = task_of(builder.build())
    for (topic, lane), times in lanes.items():
        task.add_records(topic, 0, batch_of(*((None, f"{topic}{lane}-{p}", t) for p, t in enumerate(times))), lane)
    seen = []
    while task.waiting():
        task.process()
        commit(task)
        calls = [*task.take_calls()["call"]]
        assert len(calls) <= most
        seen += [(record.value or b"").decode() for _, record in calls]
        add_answers(task, *(answer_to(call, "x") for call in calls), first_offset=len(seen) - len(calls))
        task.process_answers()
    assert seen == by_heads(lanes)


@given(st.dictionaries(st.sampled_from("cb"), st.tuples(st.lists(st.integers(0, 9)), st.integers(0, 12)), min_size=1))
def test_records_come_in_the_same_order_where_a_task_waits_for_partitions_that_lag(
    topics: dict[str, tuple[list[int], int]],
) -> None:
    task = task_of(forwarding_topology())
    rows = {t: [(None, f"{t}0-{p}", time) for p, time in enumerate(times)] for t, (times, _) in topics.items()}
    lagging = frozenset(TopicPartition(topic, 0) for topic in topics)
    for topic, (_, cut) in topics.items():
        task.add_records(topic, 0, batch_of(*rows[topic][:cut]))
    task.process(InputWait(tuple(lagging), lagging))
    for given_up in task.give_up_buffered()[0]:
        task.add_records(*given_up)
    for topic, (_, cut) in topics.items():
        task.add_records(topic, 0, batch_of(*rows[topic][cut:], first_offset=cut))
    task.process()
    assert [value for _, _, value, _ in sent(task)] == by_heads({(t, 0): times for t, (times, _) in topics.items()})


def test_what_waits_is_given_up_as_it_came_without_what_was_dropped() -> None:
    topology = Topology()
    topology.add_source("A", "a", timestamp_extractor=lambda record, _: -1 if record.value == "drop" else 10)
    topology.add_source("B", "b")
    topology.add_sink("K", "out", "A", "B")
    task = task_of(topology)
    task.add_records("a", 0, batch_of(("k", "x", 1), ("k", "drop", 2), ("k", "y", 3), ("k", "drop", 4)))
    task.process(InputWait((), frozenset([TopicPartition("b", 0)])))
    ((topic, partition, batch, lane),), again = task.give_up_buffered()
    assert (topic, partition, lane, again) == ("a", 0, 0, None)
    assert batch.values == [b"x", b"y"]
    assert batch.timestamps.tolist() == [1, 3]
    assert batch.offsets.tolist() == [0, 2]
    assert task.dropped_records == {"A": 2}
    assert task.checkpoint().partition_times == {}


def test_what_waits_is_kept_whole_where_offsets_of_a_lane_start_over() -> None:
    topology = Topology()
    topology.add_source("A", "a", timestamp_extractor=lambda record, _: -1 if record.value == "drop" else 10)
    topology.add_source("B", "b")
    topology.add_sink("K", "out", "A", "B")
    task = task_of(topology)
    task.add_records("a", 0, batch_of(("k", "u", 1), ("k", "drop", 1), ("k", "v", 2), first_offset=7), 3)
    task.add_records("a", 0, batch_of(("k", "x", 3), ("k", "drop", 4), ("k", "y", 5)), 3)
    task.process(InputWait((), frozenset([TopicPartition("b", 0)])))
    ((_, _, batch, _),), _ = task.give_up_buffered()
    assert batch.values == [b"u", b"v", b"x", b"y"]
    assert batch.offsets.tolist() == [7, 9, 0, 2]


def test_a_task_waits_for_an_empty_partition_as_long_as_it_may_idle() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    wait = InputWait((a, b), frozenset(), 100)
    task = task_of(forwarding_topology())
    task.advance_wall_clock(1_000)
    task.add_records("a", 0, batch_of(("k", "x", 5), ("k", "y", 9)))
    task.add_records("b", 0, batch_of(("k", "z", 7)))
    assert task.process(wait) == 2
    assert task.awaited == {b}
    ((_, _, held, _),), again = task.give_up_buffered()
    assert again == 1_100
    assert task.checkpoint().idle_deadlines == {b: 1_100}
    task.add_records("a", 0, held)
    task.advance_wall_clock(1_099)
    assert task.process(wait) == 0
    task.advance_wall_clock(1_100)
    assert task.process(wait) == 1
    assert task.awaited == set()
    assert task.checkpoint().idle_deadlines == {b: 1_100, a: 1_200}
    assert [value for _, _, value, _ in sent(task)] == ["x", "z", "y"]


def test_a_topic_without_a_source_is_refused_by_name() -> None:
    task = task_of(forwarding_topology())
    with pytest.raises(StreamsError, match="reads topic elsewhere: expected one of a, b, c"):
        task.add_records("elsewhere", 0, batch_of(("k", "v", 1)))


def test_a_dropped_record_is_counted_at_its_source_and_the_partition_time_continues() -> None:
    seen: list[int] = []

    def extractor(record: ConsumerRecord, partition_time: int) -> int:
        seen.append(partition_time)
        return -1 if record.value == "drop" else record.timestamp

    topology = Topology()
    topology.add_source("A", "a", timestamp_extractor=extractor)
    topology.add_sink("K", "out", "A")
    task = task_of(topology)
    task.add_records("a", 0, batch_of(("k", "x", 5), ("k", "drop", 9), ("k", "y", 3), ("k", "z", 4)))
    task.process()
    assert [value for _, _, value, _ in sent(task)] == ["x", "y", "z"]
    assert seen == [-1, 5, 5, 5]
    assert task.dropped_records == {"A": 1}
    assert set(task.checkpoint().partition_times.values()) == {5}


@pytest.mark.parametrize(
    "time", [1_690_451_888.453, 5.0, True, float("nan"), np.float64(5), None, "5", 2**63, -(2**64)]
)
def test_an_extractor_that_returns_no_whole_number_fails_and_names_the_record(time: Any) -> None:
    topology = Topology()
    topology.add_source("A", "a", timestamp_extractor=lambda record, _: 1 if record.offset == 0 else time)
    topology.add_sink("K", "out", "A")
    task = task_of(topology)
    task.add_records("a", 0, batch_of(("k", "x", 5), ("k", "y", 6)))
    message = f"timestamp extractor of A returned {time!r} for the record at topic a, partition 0, offset 1"
    with pytest.raises(StreamsError, match=re.escape(message)) as failed:
        task.process()
    assert f"<lambda> ({__file__}:" in "".join(failed.value.__notes__)


def test_an_extractor_may_return_whole_numbers_of_numpy() -> None:
    topology = Topology()
    topology.add_source("A", "a", timestamp_extractor=lambda record, _: np.int64(7))
    topology.add_sink("K", "out", "A")
    task = task_of(topology)
    task.add_records("a", 0, batch_of(("k", "x", 5)))
    task.process()
    assert [time for *_, time in sent(task)] == [7]
    assert type(task.checkpoint().partition_times[TopicPartition("a", 0)]) is int


def test_a_negative_timestamp_fails_by_default_and_names_the_record() -> None:
    task = task_of(forwarding_topology())
    batch = batch_of(("k", "v", 1))
    batch.timestamps = np.array([-1])
    task.add_records("a", 0, batch)
    with pytest.raises(StreamsError) as caught:
        task.process()
    assert str(caught.value) == (
        "Input record a-0 at offset 0 has invalid (negative) timestamp. Possibly because a pre-0.10 producer client "
        "was used to write this record to Kafka without embedding a timestamp, or because the input topic was created "
        "before upgrading the Kafka cluster to 0.10+. Use a different TimestampExtractor to process this data, such as "
        "log_and_skip_on_invalid_timestamp."
    )
    assert caught.value.failed_record is not None
    assert caught.value.failed_record[1:] == ("a", 0, 0, "'k'", "'v'")


def test_the_partition_time_replaces_a_negative_timestamp() -> None:
    topology = Topology()
    topology.add_source("A", "a", timestamp_extractor=use_partition_time_on_invalid_timestamp)
    topology.add_sink("K", "out", "A")
    task = task_of(topology)
    batch = batch_of(("k", "v", 7), ("k", "w", 0))
    batch.timestamps = np.array([7, -1])
    task.add_records("a", 0, batch)
    task.process()
    assert [(value, time) for _, _, value, time in sent(task)] == [("v", 7), ("w", 7)]


def test_the_wall_clock_is_that_of_the_task() -> None:
    topology = Topology()
    topology.add_source("A", "a", timestamp_extractor=wallclock_timestamp_extractor)
    topology.add_sink("K", "out", "A")
    task = task_of(topology)
    for now in (50, 70):
        task.advance_wall_clock(now)
        task.add_records("a", 0, batch_of(("k", "v", 7)))
        task.process()
    assert [time for _, _, _, time in sent(task)] == [50, 70]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_what_waits_is_not_in_the_positions_that_may_be_committed(one_by_one: bool) -> None:
    task = task_of(forwarding_topology())
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    wait = InputWait((a, b), frozenset([b]))
    assert task.positions() == {}
    task.add_records("a", 0, batch_of(("k", "v", 10), ("k", "v", 30), ("k", "wait", 40), first_offset=5))
    task.add_records("b", 0, batch_of(("k", "v", 20), first_offset=7))

    def process(wait: InputWait) -> None:
        if not one_by_one:
            task.process(wait)
        while one_by_one and task.process_next(wait) is not None:
            pass

    process(wait)
    # behind the last record of b, which lags, nothing is taken
    assert task.positions() == {a: 6, b: 8}
    assert task.waiting() == {a: (2, len("k" + "v" + "k" + "wait"))}
    process(NO_WAIT)
    assert task.positions() == {a: 8, b: 8}
    assert task.waiting() == {}


def test_a_record_without_a_value_is_no_request(caplog: pytest.LogCaptureFixture) -> None:
    values: list[str] = []

    def charge(value: str) -> str:
        values.append(value)
        if len(values) == 1:
            raise ConnectionError("no answer")
        return value

    builder = StreamsBuilder()
    park = Park(backoff=Backoff(3_600_000), attempts=3)
    charged = builder.stream("in", Consumed.with_(STRING, STRING)).map_values(charge, named="charge", on_error=park)
    charged.to("out", Produced.with_(STRING, STRING))
    task = task_of(builder.build())
    requests = "test-charge-parked-requests"
    task.add_records("in", 0, batch_of(("k", "v", 5)))
    task.process()
    retry = ParkedRequestSerde().serialize(requests, ParkedRequest(ParkedAction.RETRY, 1))
    rows: list[Any] = [(b"k", None, 1, 0, ()), (None, retry, 1, 1, ()), (None, None, 1, 2, ())]
    task.add_records(requests, 0, RecordBatch.of(rows))
    task.process()
    task.advance_wall_clock(task.next_wall_clock_ms() or 0)
    assert values == ["v", "v"]
    assert [value for _, _, value, _ in sent(task)] == ["v"]
    assert task.positions()[TopicPartition(requests, 0)] == 3
    assert task.prepare_commit().dropped_records == {
        Dropped("charge-parked-requests", DropReason.DESERIALIZATION): 2,
    }
    assert f"Topic {requests} has a record without a value at partition 0, offset 0, which is dropped" in caplog.text


def test_a_record_without_a_value_is_no_answer() -> None:
    task = task_of(calling())
    task.add_records("in", 0, batch_of(("k", "v", 5)))
    task.process()
    commit(task)
    (call,) = task.take_calls()["call"]
    rows: list[Any] = [(b"k", None, 1, 0, ())]
    task.add_records(ANSWERS, 0, RecordBatch.of(rows))
    task.process()
    assert (sent(task), task.waiting_calls) == ([], 1)
    add_answers(task, answer_to(call, "done"), first_offset=1)
    task.process()
    assert [value for _, _, value, _ in sent(task)] == ["done"]
    assert task.prepare_commit().dropped_records == {Dropped("call-answers", DropReason.DESERIALIZATION): 1}


def test_output_is_given_up_without_a_commit() -> None:
    task = task_of(forwarding_topology())
    task.add_records("a", 0, batch_of(("k", "v", 10)))
    task.process()
    assert [(each.topic, each.batch.values) for each in task.take_output()] == [("out", [b"v"])]
    task.add_records("a", 0, batch_of(("k", "w", 10), first_offset=1))
    task.process()
    assert [each.batch.values for each in task.prepare_commit().output] == [[b"w"]]
