"""The calls of an operator keep its order and its limits, and each has one answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from penstock import vectorized
from penstock.host.calls.measuring import CallFigures
from penstock.processor.backoff import Backoff
from penstock.processor.calls import NOT_CALLED, CallContext, CallOrder, NotCalled
from penstock.record import TopicPartition
from tests.host.calls.support import (
    HOUR,
    TOPIC,
    Gatekeeper,
    KeptAnswers,
    Run,
    entries,
    record,
    running,
    spec,
    until,
    upper,
)


def test_records_of_a_key_are_called_one_after_the_other(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    run(spec(gate.call)).add("risk", 0, entries(("a", "a1"), ("a", "a2"), ("b", "b1"), (None, "n1"), (None, "n2")))
    assert gate.wait_for(4) == ["a1", "b1", "n1", "n2"]
    gate.let_go("a2", "b1")
    assert answers.results(1) == ["B1"]
    assert "a2" not in gate.begun
    gate.let_go("a1")
    assert answers.results(3) == ["B1", "A1", "A2"]
    gate.let_go("n1", "n2")


def test_the_same_key_in_two_partitions_is_called_side_by_side(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    runner = run(spec(gate.call))
    runner.add("risk", 0, entries(("a", "x")))
    runner.add("risk", 1, entries(("a", "y")))
    assert gate.wait_for(2) == ["x", "y"]
    gate.let_go("x", "y")


def test_answers_of_a_partition_leave_in_order(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    run(spec(gate.call, order=CallOrder.PARTITION)).add("risk", 0, entries(("a", "1"), ("a", "2"), ("b", "3")))
    assert gate.wait_for(3) == ["1", "2", "3"]
    gate.let_go("3")
    gate.let_go("2")
    gate.let_go("1")
    assert answers.results(3) == ["1", "2", "3"]


def test_answers_without_an_order_leave_as_they_come(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    run(spec(gate.call, order=CallOrder.UNORDERED)).add("risk", 0, entries(("a", "x"), ("a", "y")))
    gate.wait_for(2)
    gate.let_go("y")
    assert answers.results(1) == ["Y"]
    gate.let_go("x")
    assert answers.results(2) == ["Y", "X"]


def test_no_more_calls_than_the_capacity_are_in_flight(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    values = [str(number) for number in range(10)]
    run(spec(gate.call, capacity=3)).add("risk", 0, entries(*((value, value) for value in values)))
    for done in range(10):
        assert gate.wait_for(min(done + 3, 10)) == values[: done + 3]
        gate.let_go(values[done])
        answers.wait_for(done + 1)


def test_a_pause_between_attempts_takes_no_place(run: Run, answers: KeptAnswers) -> None:
    attempts: list[str] = []

    async def call(value: str) -> str:
        attempts.append(value)
        if value == "bad":
            raise OSError("down")
        return value

    runner = run(spec(call, capacity=1, attempts=2, backoff=Backoff(HOUR, limit=HOUR)))
    runner.add("risk", 0, entries(("a", "bad"), ("a", "after"), ("b", "good")))
    assert answers.results(1) == ["good"]
    assert attempts == ["bad", "good"]


def test_a_failed_call_is_tried_again_before_its_key_goes_on(run: Run, answers: KeptAnswers) -> None:
    seen: list[int] = []

    async def call(value: str, *, call: CallContext) -> str:
        seen.append(call.attempt)
        if call.attempt < 3:
            raise OSError("down")
        return value

    runner = run(spec(call, takes=("call",), attempts=5))
    runner.add("risk", 0, entries(("a", "x"), ("a", "y")))
    assert answers.results(2) == ["x", "y"]
    assert seen == [1, 2, 3, 1, 2, 3]
    assert answers.records[0].answer.attempts == 3
    assert runner.take_measured()["risk"].retries == 4


def test_the_last_failure_is_the_answer(run: Run, answers: KeptAnswers) -> None:
    async def call(value: str) -> str:
        raise ValueError(f"no {value}")

    runner = run(spec(call, attempts=2))
    runner.add("risk", 0, entries(("a", "x")))
    assert answers.results(1) == ["ValueError: no x"]
    answer = answers.records[0].answer
    assert (answer.result, answer.attempts) == (None, 2)
    assert "in call" in answer.details
    assert runner.take_measured()["risk"]._replace(latency=CallFigures().latency, percentiles=None) == CallFigures(
        0, 0, 1, 1, 1
    )


def test_only_chosen_errors_are_tried_again(run: Run, answers: KeptAnswers) -> None:
    async def call(value: str) -> str:
        raise ValueError(value)

    run(spec(call, attempts=5, retry_on=(OSError,))).add("risk", 0, entries(("a", "x")))
    assert answers.wait_for(1)[0].answer.attempts == 1


def test_a_result_that_cannot_be_written_is_paid_once(run: Run, answers: KeptAnswers) -> None:
    async def call(value: str) -> int:
        return 5

    run(spec(call, attempts=5)).add("risk", 0, entries(("a", "x")))
    (failure,) = answers.results(1)
    assert failure is not None
    assert failure.startswith("SerializationError: The result 5 of risk cannot be an answer")
    assert "answer_serde=" in failure
    assert answers.records[0].answer.attempts == 1


def test_no_call_starts_while_many_answers_are_not_written() -> None:
    answers, begun = KeptAnswers(settles=False), []

    async def call(value: str) -> str:
        begun.append(value)
        return value

    runner = running(answers, spec(call, capacity=2))
    runner.add("risk", 0, entries(*((str(n), str(n)) for n in range(20))))
    answers.wait_for(2)
    until(lambda: runner.take_measured()["risk"].in_flight == 0)
    assert len(begun) <= 3
    for settled in [*answers.unsettled]:
        settled()
    answers.wait_for(4)
    runner.close()


def test_an_answer_that_waits_for_earlier_ones_keeps_its_place(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    values = [str(number) for number in range(6)]
    runner = run(spec(gate.call, order=CallOrder.PARTITION, capacity=3))
    runner.add("risk", 0, entries(*((value, value) for value in values)))
    gate.let_go("1", "2")
    until(lambda: len(gate.begun) == 3 and runner.take_measured()["risk"].in_flight == 1)
    assert gate.begun == ["0", "1", "2"]
    gate.let_go(*values)
    assert answers.results(6) == values


def test_a_failed_call_is_tried_again_while_later_answers_wait_for_it(run: Run, answers: KeptAnswers) -> None:
    attempts: list[str] = []

    async def call(value: str) -> str:
        attempts.append(value)
        if value == "0" and attempts.count("0") < 3:
            raise OSError("down")
        return value

    runner = run(spec(call, order=CallOrder.PARTITION, capacity=2, attempts=3, backoff=Backoff(50)))
    runner.add("risk", 0, entries(*((str(n), str(n)) for n in range(6))))
    assert answers.results(6) == ["0", "1", "2", "3", "4", "5"]
    assert attempts[:5] == ["0", "1", "2", "0", "0"]


def test_a_dropped_answer_frees_its_place(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    runner = run(spec(gate.call, order=CallOrder.PARTITION, capacity=2))
    runner.add("risk", 0, entries(("a", "0"), ("b", "1")))
    runner.add("risk", 1, entries(("a", "next"), ("b", "last")))
    gate.let_go("1")
    until(lambda: len(gate.begun) == 2 and runner.take_measured()["risk"].in_flight == 1)
    runner.drop("risk", 0)
    gate.let_go("next", "last")
    assert answers.results(2) == ["NEXT", "LAST"]


def test_an_answer_names_its_record(run: Run, answers: KeptAnswers) -> None:
    run(spec(upper)).add("risk", 3, [(7, record("k", "a", offset=5, partition=9))])
    (written,) = answers.wait_for(1)
    assert written.partition == TopicPartition(TOPIC, 3)
    assert (written.key, written.timestamp) == ((7).to_bytes(8, "big"), 1_005)
    assert written.answer.answers(7, record("k", "a", offset=5, partition=9))
    assert (written.answer.result, written.answer.attempts, written.answer.failure) == (b"A", 1, "")


def test_a_function_receives_what_it_declares(run: Run, answers: KeptAnswers) -> None:
    seen: list[tuple[str, CallContext, object]] = []

    async def call(key: str, value: str, *, client: object, call: CallContext) -> None:
        seen.append((key, call, client))

    @asynccontextmanager
    async def client() -> AsyncIterator[str]:
        yield "connected"

    run(spec(call, with_key=True, takes=("client", "call"), open=client)).add("risk", 0, entries(("k", "v")))
    assert answers.results(1) == [None]
    ((key, context, opened),) = seen
    assert (key, opened) == ("k", "connected")
    assert (context.topic, context.offset, context.attempt, context.key) == ("orders", 1, 1, "k")
    assert context.idempotency_key == "orders-0-1-risk"


class Charges:
    """A service that charges for each call, and knows what it has charged.

    Args:
        failures: the number of charges that the service carries out without an answer.
        known: values that it has charged before.
    """

    def __init__(self, failures: int = 0, *known: str) -> None:
        self.failures = failures
        self.charged = [*known]
        self.asked: list[str] = []

    async def charge(self, value: str) -> str:
        self.charged.append(value)
        if self.failures:
            self.failures -= 1
            await asyncio.Event().wait()
        return f"{value} charged"

    async def known(self, value: str) -> str | NotCalled:
        self.asked.append(value)
        return f"{value} known" if value in self.charged else NOT_CALLED


def test_a_call_that_timed_out_is_looked_up_before_it_is_made_again(run: Run, answers: KeptAnswers) -> None:
    service = Charges(1)
    runner = run(spec(service.charge, reconcile=service.known, attempts=2, timeout_ms=50))
    runner.add("risk", 0, entries(("a", "x"), ("b", "y")))
    assert sorted(map(str, answers.results(2))) == ["x known", "y charged"]
    assert (service.charged, service.asked) == (["x", "y"], ["x"])


def test_a_record_that_waited_before_is_looked_up_first(run: Run, answers: KeptAnswers) -> None:
    service = Charges(0, "a")
    found = [(number, waiting.that_waited()) for number, waiting in entries((None, "a"), (None, "b"))]
    runner = run(spec(service.charge, reconcile=service.known))
    runner.add("risk", 0, [*found, (3, record("c", "c"))])
    assert sorted(map(str, answers.results(3))) == ["a known", "b charged", "c charged"]
    assert (sorted(service.charged), service.asked) == (["a", "b", "c"], ["a", "b"])


def test_a_look_up_that_fails_is_a_failed_attempt(run: Run, answers: KeptAnswers) -> None:
    service = Charges()

    async def down(value: str) -> str:
        raise OSError("down")

    waited = [(1, record("a", "x").that_waited())]
    run(spec(service.charge, reconcile=down, attempts=3)).add("risk", 0, waited)
    assert answers.results(1) == ["reconcile failed: OSError: down"]
    assert answers.records[0].answer.attempts == 3
    assert service.charged == []


def test_a_look_up_has_a_time_of_its_own(run: Run, answers: KeptAnswers) -> None:
    begun: list[str] = []

    async def hangs(value: str) -> str:
        begun.append(value)
        await asyncio.Event().wait()
        return value

    waited = [(1, record("a", "x").that_waited())]
    run(spec(upper, reconcile=hangs, timeout_ms=20, attempts=2)).add("risk", 0, waited)
    (failure,) = answers.results(1)
    assert (failure or "").startswith("TimeoutError: ")
    assert begun == ["x", "x"]


def test_a_look_up_that_was_given_up_makes_no_call(answers: KeptAnswers) -> None:
    service, ends = Charges(), threading.Event()

    async def deaf(value: str) -> NotCalled:
        service.asked.append(value)
        while not ends.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        service.asked.append("ended")
        return NOT_CALLED

    runner = running(answers, spec(service.charge, reconcile=deaf, timeout_ms=5), cancel_seconds=0.01)
    runner.add("risk", 0, [(1, record("a", "x").that_waited())])
    (failure,) = answers.results(1)
    assert (failure or "").startswith("TimeoutError: ")
    ends.set()
    until(lambda: service.asked[-1] == "ended")
    runner.add("risk", 0, [(2, record("b", "last"))])
    assert answers.results(2)[1] == "last charged"
    assert service.charged == ["last"]
    runner.close()


def test_a_blocking_look_up_runs_on_the_threads(run: Run, answers: KeptAnswers) -> None:
    threads: set[str] = set()

    def known(value: str) -> str | NotCalled:
        threads.add(threading.current_thread().name)
        return NOT_CALLED if value == "new" else f"{value} known"

    def charge(value: str) -> str:
        return f"{value} charged"

    waited = [(n, each.that_waited()) for n, each in entries(("a", "old"), ("b", "new"))]
    run(spec(charge, reconcile=known, threads=1)).add("risk", 0, waited)
    assert sorted(map(str, answers.results(2))) == ["new charged", "old known"]
    assert threads == {"penstock-risk"}


# ---------------------------------------- functions on columns


def test_a_record_that_the_service_may_know_has_an_attempt_of_its_own(run: Run, answers: KeptAnswers) -> None:
    seen: list[list[str]] = []

    async def known(value: str) -> str | NotCalled:
        if value == "1":
            await asyncio.sleep(HOUR)
        return "known" if value == "0" else NOT_CALLED

    waited = [(number, each.that_waited()) for number, each in numbered(3)]
    new = [(number, record(str(number), str(number))) for number in (4, 5)]
    runner = run(spec(noting(seen, {"2": OSError("down")}), batch_size=9, timeout_ms=50, reconcile=known))
    runner.add("risk", 0, [*waited, *new])
    found = sorted(map(str, answers.results(5)))
    assert found[:3] == ["4", "5", "OSError: down"]
    assert found[3] == "TimeoutError: The reconcile of risk for orders-0, offset 2, did not end within 50 ms."
    assert found[4] == "known"
    assert sorted(seen) == [["2"], ["4", "5"]]


def test_a_record_that_is_dropped_while_the_client_is_opened_is_not_called(run: Run, answers: KeptAnswers) -> None:
    seen: list[list[str]] = []
    begun, gate = threading.Event(), threading.Event()

    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        begun.set()
        while not gate.is_set():
            await asyncio.sleep(0.001)
        yield "client"

    runner = run(spec(noting(seen), batch_size=2, batch_wait_ms=HOUR, open=opened))
    runner.add("risk", 0, entries(("a", "lost")))
    runner.add("risk", 1, entries(("a", "kept")))
    assert begun.wait(20)
    runner.drop("risk", 0)
    gate.set()
    assert answers.results(1) == ["KEPT"]
    assert seen == [["kept"]]


def noting(seen: list[list[str]], outcomes: dict[str, Exception] | None = None) -> Any:
    """Return a function on columns that notes its batches; some values fail."""

    @vectorized
    async def call(values: list[str]) -> list[Any]:
        seen.append(values)
        return [(outcomes or {}).get(value, value.upper()) for value in values]

    return call


def numbered(number: int) -> list[tuple[int, Any]]:
    return entries(*((str(each), str(each)) for each in range(number)))


def test_an_attempt_takes_several_records_and_each_has_an_answer(run: Run, answers: KeptAnswers) -> None:
    seen: list[list[str]] = []
    runner = run(spec(noting(seen), batch_size=4))
    runner.add("risk", 0, entries(*((text, text) for text in "abcdefghij")))
    assert answers.results(10) == [*"ABCDEFGHIJ"]
    assert seen == [[*"abcd"], [*"efgh"], [*"ij"]]
    assert [each.key for each in answers.records] == [number.to_bytes(8, "big") for number in range(1, 11)]
    figures = runner.take_measured()["risk"]
    assert (figures.answered, figures.latency.number) == (10, 3)


def test_a_batch_takes_one_record_of_a_key(run: Run, answers: KeptAnswers) -> None:
    seen: list[list[str]] = []
    run(spec(noting(seen), batch_size=4)).add("risk", 0, entries(("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3")))
    assert answers.results(4) == ["A1", "B1", "A2", "A3"]
    assert seen == [["a1", "b1"], ["a2"], ["a3"]]


def test_a_batch_takes_records_of_several_partitions(run: Run, answers: KeptAnswers) -> None:
    seen: list[list[str]] = []
    runner = run(spec(noting(seen), batch_size=2, batch_wait_ms=HOUR))
    runner.add("risk", 0, entries(("a", "x")))
    runner.add("risk", 1, entries(("a", "y")))
    assert answers.results(2) == ["X", "Y"]
    assert [each.partition for each in answers.records] == [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]


def test_a_record_waits_for_others_for_a_limited_time(run: Run, answers: KeptAnswers) -> None:
    seen: list[list[str]] = []
    run(spec(noting(seen), batch_size=4, batch_wait_ms=20)).add("risk", 0, numbered(6))
    assert answers.results(6) == [*"012345"]
    assert seen == [[*"0123"], [*"45"]]


def test_a_batch_takes_one_place_of_the_capacity(run: Run, answers: KeptAnswers) -> None:
    begun: list[list[str]] = []
    gate = threading.Event()

    @vectorized
    async def call(values: list[str]) -> list[str]:
        begun.append(values)
        while not gate.is_set():
            await asyncio.sleep(0.001)
        return values

    runner = run(spec(call, batch_size=3, capacity=2))
    runner.add("risk", 0, numbered(9))
    until(lambda: len(begun) == 2)
    assert runner.take_measured()["risk"].in_flight == 2
    gate.set()
    assert len(answers.results(9)) == 9
    assert begun == [[*"012"], [*"345"], [*"678"]]


def test_an_error_among_the_answers_fails_its_record(run: Run, answers: KeptAnswers) -> None:
    seen: list[list[str]] = []
    runner = run(spec(noting(seen, {"1": ValueError("declined")}), batch_size=3, attempts=3))
    runner.add("risk", 0, numbered(3))
    assert answers.results(3) == ["0", "2", "ValueError: declined"]
    assert seen == [[*"012"], ["1"], ["1"]]
    assert [each.answer.attempts for each in answers.records] == [1, 1, 3]


def test_a_failed_batch_fails_each_record_and_the_last_attempt_is_for_each_alone(
    run: Run, answers: KeptAnswers
) -> None:
    seen: list[list[str]] = []

    @vectorized
    async def call(values: list[str]) -> list[str]:
        seen.append(values)
        if "1" in values:
            raise OSError("refused")
        return values

    run(spec(call, batch_size=3, attempts=3)).add("risk", 0, numbered(3))
    assert sorted(map(str, answers.results(3))) == ["0", "2", "OSError: refused"]
    assert seen[:2] == [[*"012"], [*"012"]]
    assert sorted(seen[2:]) == [["0"], ["1"], ["2"]]


def test_a_wrong_number_of_answers_fails_each_record(run: Run, answers: KeptAnswers) -> None:
    @vectorized
    async def call(values: list[str]) -> list[str]:
        return values[1:]

    run(spec(call, batch_size=2)).add("risk", 0, numbered(2))
    for failure in answers.results(2):
        assert failure is not None
        assert failure.startswith("ColumnError: The calls of risk have no answers: ")
        assert "returned a column of length 1 where length 2 was expected" in failure


def test_a_batch_that_takes_too_long_is_cancelled(run: Run, answers: KeptAnswers) -> None:
    @vectorized
    async def call(values: list[str]) -> list[str]:
        await asyncio.sleep(HOUR)
        return values

    run(spec(call, batch_size=2, timeout_ms=20)).add("risk", 0, numbered(2))
    expected = "TimeoutError: The call of risk for orders-0, offset 1, and 1 more, did not end within 20 ms."
    assert answers.results(2) == [expected, expected]


def test_a_dropped_record_of_a_batch_has_no_answer(run: Run, answers: KeptAnswers) -> None:
    begun = threading.Event()
    gate = threading.Event()

    @vectorized
    async def call(values: list[str]) -> list[str]:
        begun.set()
        while not gate.is_set():
            await asyncio.sleep(0.001)
        return values

    runner = run(spec(call, batch_size=2, batch_wait_ms=HOUR))
    runner.add("risk", 0, entries(("a", "x")))
    runner.add("risk", 1, entries(("a", "y")))
    assert begun.wait(20)
    runner.drop("risk", 0)
    gate.set()
    assert answers.results(1) == ["y"]
    assert answers.records[0].partition == TopicPartition(TOPIC, 1)


def test_a_batch_whose_records_are_all_dropped_is_cancelled(run: Run, answers: KeptAnswers) -> None:
    begun = threading.Event()
    cancelled = threading.Event()

    @vectorized
    async def call(values: list[str]) -> list[str]:
        begun.set()
        try:
            await asyncio.sleep(HOUR)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return values

    runner = run(spec(call, batch_size=2))
    runner.add("risk", 0, numbered(2))
    assert begun.wait(20)
    runner.drop("risk", 0)
    assert cancelled.wait(20)


def test_answers_of_batches_leave_in_the_order_of_the_partition(run: Run, answers: KeptAnswers) -> None:
    failing = {"0": OSError("down")}
    seen: list[list[str]] = []
    run(spec(noting(seen, failing), order=CallOrder.PARTITION, batch_size=2, capacity=2, attempts=3)).add(
        "risk", 0, entries(*(("a", str(number)) for number in range(8)))
    )
    assert answers.results(8) == ["OSError: down", *"1234567"]


def test_a_blocking_function_on_columns_runs_on_a_thread(run: Run, answers: KeptAnswers) -> None:
    threads: list[str] = []

    @vectorized
    def call(keys: list[str], values: list[str]) -> list[str]:
        threads.append(threading.current_thread().name)
        return [key + value for key, value in zip(keys, values, strict=True)]

    run(spec(call, with_key=True, batch_size=2, threads=1)).add("risk", 0, numbered(3))
    assert answers.results(3) == ["00", "11", "22"]
    assert threads == ["penstock-risk"] * 2


def test_a_batch_counts_once_for_the_rate(run: Run, answers: KeptAnswers) -> None:
    seen: list[list[str]] = []
    runner = run(spec(noting(seen), batch_size=3, rate=1 / HOUR))
    runner.add("risk", 0, numbered(6))
    assert answers.results(3) == ["0", "1", "2"]
    assert seen == [[*"012"]]
