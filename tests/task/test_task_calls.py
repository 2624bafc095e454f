"""A task with calls: committed records, answers, a full store, restarts, and time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from penstock import Calls, Consumed, Processor, Produced, Record, StreamsBuilder
from penstock.errors import CallFailedError, StreamsError
from penstock.processor.waiting_records import Waiting
from penstock.record import TopicPartition
from penstock.state.memory import MemoryBase
from penstock.task.idling import InputWait
from penstock.task.stream_task import StreamTask
from tests.task.calls import ANSWERS, STRING, add_answers, answer_to, calling, commit, failure_of, service
from tests.task.topologies import batch_of, sent, task_of

EXECUTIONS = pytest.mark.parametrize("execution", ["auto", "record"])


def taken(task: StreamTask) -> list[Waiting]:
    return [*task.take_calls().get("call", [])]


def values(task: StreamTask) -> list[str | None]:
    return [value for topic, _, value, _ in sent(task) if topic == "out"]


@EXECUTIONS
def test_calls_are_those_of_committed_records(execution: str) -> None:
    task = task_of(calling(), execution=execution)
    task.add_records("in", 0, batch_of(("a", "1", 5), ("b", "2", 6)))
    assert task.process() == 2
    assert task.take_calls() == {}
    commit(task)
    first, second = taken(task)
    assert [(number, each.value, each.offset, each.timestamp) for number, each in (first, second)] == [
        (1, b"1", 0, 5),
        (2, b"2", 1, 6),
    ]
    assert task.take_calls() == {}
    add_answers(task, answer_to(second, "two"), answer_to(first, "one"))
    assert task.process() == 2
    assert sent(task) == [("out", "b", "two", 6), ("out", "a", "one", 5)]
    commit(task)
    assert task.take_calls() == {}
    assert task.positions() == {TopicPartition("in", 0): 2, TopicPartition(ANSWERS, 0): 2}


@EXECUTIONS
def test_the_first_answer_counts(execution: str) -> None:
    task = task_of(calling(), execution=execution)
    task.add_records("in", 0, batch_of(*[("a", str(number), 5) for number in range(30)]))
    task.process()
    commit(task)
    calls = taken(task)
    add_answers(task, *(answer_to(call, "first") for call in calls), *(answer_to(call, "second") for call in calls))
    task.process()
    assert values(task) == ["first"] * 30


def test_a_restart_returns_the_records_that_wait_and_uses_new_numbers() -> None:
    base = MemoryBase()
    task = task_of(calling(), base=base)
    task.add_records("in", 0, batch_of(("a", "1", 5), ("b", "2", 6), ("c", "3", 7)))
    task.process()
    commit(task)
    first, second, third = taken(task)
    add_answers(task, answer_to(third, "three"), answer_to(first, "one"))
    task.process()
    done = task.prepare_commit()
    task.committed(done.changes, b"2")
    again = task_of(calling(), base=base, checkpoint=done.checkpoint)
    assert taken(again) == [second]
    assert again.take_calls() == {}
    again.add_records("in", 0, batch_of(("d", "4", 8), first_offset=3))
    again.process()
    commit(again)
    ((number, _),) = taken(again)
    assert number == 4


def test_uncommitted_uses_of_answers_are_repeated() -> None:
    base = MemoryBase()
    task = task_of(calling(), base=base)
    task.add_records("in", 0, batch_of(("a", "1", 5)))
    task.process()
    done = task.prepare_commit()
    task.committed(done.changes, b"1")
    (call,) = taken(task)
    add_answers(task, answer_to(call, "one"))
    task.process()
    again = task_of(calling(), base=base, checkpoint=done.checkpoint)
    add_answers(again, answer_to(call, "one"))
    again.process()
    assert values(again) == ["one"]


@pytest.mark.parametrize("limit", [{"max_records": 2}, {"max_bytes": 50}])
def test_a_task_with_a_full_store_takes_only_answers(limit: dict[str, int]) -> None:
    task = task_of(calling(**limit))
    task.add_records("in", 0, batch_of(("a", "1", 5), ("b", "2", 6)))
    task.process()
    commit(task)
    assert task.waits_for_answers
    task.add_records("in", 0, batch_of(("c", "3", 7), first_offset=2))
    lagging = InputWait((TopicPartition("in", 0),), frozenset([TopicPartition("in", 0)]))
    assert task.process(lagging) == 0
    assert task.waiting()[TopicPartition("in", 0)].records == 1
    first, second = taken(task)
    add_answers(task, answer_to(first, "one"), answer_to(second, "two"))
    assert task.process() == 3
    assert values(task) == ["one", "two"]
    assert not task.waits_for_answers


def test_failures_before_the_offset_of_the_opening_are_ignored() -> None:
    base = MemoryBase()
    task = task_of(calling(), base=base)
    task.add_records("in", 0, batch_of(("a", "1", 5)))
    task.process()
    done = task.prepare_commit()
    task.committed(done.changes, b"1")
    (call,) = taken(task)
    again = task_of(calling(), base=base, checkpoint=done.checkpoint)
    again.call_again_before({TopicPartition(ANSWERS, 0): 2})
    unusable = answer_to(call, "one")
    add_answers(again, failure_of(call), replace(unusable, result=b"\xc1"))
    assert again.process() == 2
    assert taken(again) == [call]
    add_answers(again, answer_to(call, "one"), first_offset=2)
    again.process()
    assert values(again) == ["one"]


@pytest.mark.parametrize(("order", "used"), [("key", ["two"]), ("partition", []), ("unordered", ["two", "three"])])
def test_answers_after_an_ignored_failure_keep_the_order(
    order: Literal["key", "partition", "unordered"], used: list[str]
) -> None:
    base = MemoryBase()
    task = task_of(calling(order=order), base=base)
    task.add_records("in", 0, batch_of(("a", "1", 5), ("b", "2", 6), ("a", "3", 7)))
    task.process()
    done = task.prepare_commit()
    task.committed(done.changes, b"1")
    first, second, third = taken(task)
    again = task_of(calling(order=order), base=base, checkpoint=done.checkpoint)
    again.call_again_before({TopicPartition(ANSWERS, 0): 3})
    add_answers(again, failure_of(first), answer_to(second, "two"), answer_to(third, "three"))
    again.process()
    assert values(again) == used
    left = {"key": [first, third], "partition": [first, second, third], "unordered": [first]}[order]
    assert taken(again) == left
    answers = [
        answer_to(call, text)
        for call, text in zip((first, second, third), ("one", "two", "three"), strict=True)
        if call in left
    ]
    add_answers(again, *answers, first_offset=3)
    again.process()
    assert {"one", "two", "three"} == {*used, *values(again)}


def test_later_failures_are_raised() -> None:
    task = task_of(calling())
    task.call_again_before({TopicPartition(ANSWERS, 0): 2})
    task.add_records("in", 0, batch_of(("a", "1", 5)))
    task.process()
    commit(task)
    (call,) = taken(task)
    add_answers(task, failure_of(call), first_offset=2)
    with pytest.raises(StreamsError) as raised:
        task.process()
    assert isinstance(raised.value.__cause__, CallFailedError)


def test_failures_that_are_skipped_stay_final() -> None:
    task = task_of(calling(on_failure="skip"))
    task.call_again_before({TopicPartition(ANSWERS, 0): 2})
    task.add_records("in", 0, batch_of(("a", "1", 5)))
    task.process()
    commit(task)
    (call,) = taken(task)
    add_answers(task, failure_of(call))
    task.process()
    assert (task.waiting_calls, sum(task.dropped_records.values())) == (0, 1)


def test_errors_of_later_nodes_are_raised_at_each_run() -> None:
    class Failing(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            raise ValueError("a later node")

    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(STRING, STRING)).map_values(service, "call", calls=Calls())
    stream.process(Failing)
    task = task_of(builder.build())
    task.call_again_before({TopicPartition(ANSWERS, 0): 9})
    task.add_records("in", 0, batch_of(("a", "1", 5)))
    task.process()
    commit(task)
    (call,) = taken(task)
    add_answers(task, answer_to(call, "one"))
    with pytest.raises(StreamsError) as raised:
        task.process()
    assert str(raised.value.__cause__) == "a later node"


@EXECUTIONS
@pytest.mark.parametrize(("limit", "most"), [({"max_records": 10}, 100), ({"max_bytes": 1_000}, 100)])
def test_input_that_does_not_fit_stays_buffered(execution: str, limit: dict[str, int], most: int) -> None:
    task = task_of(calling(**limit), execution=execution)
    rows = [("a", str(number), number) for number in range(1_000)]
    task.add_records("in", 0, batch_of(*rows))
    written: list[str | None] = []
    offset = 0
    while len(written) < len(rows):
        task.process()
        assert task.waits_for_answers or not task.waiting()
        assert task.waiting_calls <= most
        assert task.positions()[TopicPartition("in", 0)] == len(written) + task.waiting_calls
        commit(task)
        answers = [answer_to(call, str(call[1].offset)) for call in taken(task)]
        add_answers(task, *answers, first_offset=offset)
        offset += len(answers)
        task.process_answers()
        written += values(task)
    assert written == [str(number) for number in range(1_000)]


@EXECUTIONS
def test_records_for_calls_are_taken_as_without_a_limit(execution: str) -> None:
    def run(most: int) -> list[tuple[str | None, str | None]]:
        builder = StreamsBuilder()
        left, right = (builder.stream(topic, Consumed.with_(STRING, STRING)) for topic in ("left", "right"))
        merged = left.merge(right).filter(lambda key, value: key != "c")
        merged.map_values(service, "call", calls=Calls(max_records=most)).to("out", Produced.with_(STRING, STRING))
        task = task_of(builder.build(), execution=execution)
        task.add_records("left", 0, batch_of(*((key, f"l{n}", n // 3) for n, key in enumerate("abc" * 60))))
        task.add_records("right", 0, batch_of(*((key, f"r{n}", n // 2) for n, key in enumerate("abc" * 60))))
        seen: list[tuple[str | None, str | None]] = []
        answered = 0
        while task.waiting() or task.waiting_calls:
            task.process()
            commit(task)
            answers = [answer_to(call, (call[1].value or b"").decode()) for call in taken(task)]
            add_answers(task, *answers, first_offset=answered)
            answered += len(answers)
            task.process_answers()
            seen += [(key, value) for topic, key, value, _ in sent(task) if topic == "out"]
        return seen

    whole = run(10_000)
    assert len(whole) == 240
    assert run(7) == whole


def test_a_driver_that_takes_single_records_leaves_those_that_do_not_fit() -> None:
    task = task_of(calling(max_records=1))
    task.add_records("in", 0, batch_of(("a", "1", 5), ("b", "2", 6)))
    assert task.process_next() == TopicPartition("in", 0)
    assert task.process_next() is None
    assert task.waiting()[TopicPartition("in", 0)].records == 1


def test_answers_do_not_wait_and_are_not_awaited() -> None:
    task = task_of(calling())
    inputs, answers = TopicPartition("in", 0), TopicPartition(ANSWERS, 0)
    task.add_records("in", 0, batch_of(("a", "1", 5)))
    assert task.process(InputWait((inputs, answers), frozenset([answers]), 1_000)) == 1
    assert task.awaited == frozenset()
    commit(task)
    (call,) = taken(task)
    add_answers(task, answer_to(call, "one"), timestamp=10_000)
    assert task.process(InputWait((inputs, answers), frozenset([inputs]), 1_000)) == 1
    assert values(task) == ["one"]


@pytest.mark.parametrize("policy", ["max", "min"])
def test_answers_do_not_advance_stream_time(policy: str) -> None:
    task = task_of(calling(), config={"stream.time.policy": policy})
    task.add_records("in", 0, batch_of(("a", "1", 5)))
    task.process()
    assert task.checkpoint().stream_time == 5
    commit(task)
    (call,) = taken(task)
    add_answers(task, answer_to(call, "one"), timestamp=9_000)
    task.process()
    assert task.checkpoint().stream_time == 5
    assert ANSWERS not in {each.topic for each in task.checkpoint().partition_times}


def test_answers_are_not_ahead_of_other_partitions() -> None:
    task = task_of(calling(), config={"partition.pause.threshold.ms": 10})
    task.add_records("in", 0, batch_of(("a", "1", 50_000)))
    task.process()
    commit(task)
    (call,) = taken(task)
    add_answers(task, answer_to(call, "one"), timestamp=5)
    task.process()
    assert task.partitions_to_pause() == frozenset()


def test_one_record_at_a_time_leaves_answers_for_themselves() -> None:
    task = task_of(calling())
    task.add_records("in", 0, batch_of(("a", "1", 5)))
    assert task.process_next() == TopicPartition("in", 0)
    commit(task)
    (call,) = taken(task)
    add_answers(task, answer_to(call, "one"))
    assert task.process_next() is None
    assert task.process_answers() == 1
    assert values(task) == ["one"]


@EXECUTIONS
def test_a_tap_keeps_the_records_without_their_answers(execution: str) -> None:
    task = task_of(calling(), execution=execution)
    task.tap("call", 5)
    task.add_records("in", 0, batch_of(("a", "1", 5)))
    task.process()
    commit(task)
    (call,) = taken(task)
    add_answers(task, answer_to(call, "one"), answer_to(call, "one"))
    task.process()
    assert [(each.key, each.value, each.topic, each.offset) for each in task.tapped("call")] == [("a", "1", "in", 0)]


@pytest.mark.parametrize(
    ("order", "used"),
    [("key", ["two", "one", "three"]), ("partition", ["one", "two", "three"]), ("unordered", ["three", "two", "one"])],
)
@EXECUTIONS
def test_an_answer_before_its_turn_is_used_when_it_comes_again(
    order: Literal["key", "partition", "unordered"], used: list[str], execution: str
) -> None:
    task = task_of(calling(order=order), execution=execution)
    task.add_records("in", 0, batch_of(("a", "1", 5), ("b", "2", 6), ("a", "3", 7)))
    task.process()
    commit(task)
    one, two, three = (answer_to(*each) for each in zip(taken(task), ("one", "two", "three"), strict=True))
    add_answers(task, three, two, one, two, three)
    task.process()
    assert values(task) == used
