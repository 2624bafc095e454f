"""Processors that call functions, in the test driver and in both executions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    CallContext,
    Calls,
    Consumed,
    FixedKeyProcessor,
    FixedKeyRecord,
    KStream,
    Processor,
    ProcessorContext,
    ProcessorSupplier,
    ProcessorWrapper,
    Produced,
    PunctuationType,
    Record,
    Retry,
    Serdes,
    Stores,
    StreamsBuilder,
    TopologyConfig,
)
from penstock.errors import CallFailedError, StreamsError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC, LogAndContinueProcessingExceptionHandler
from penstock.plan.topology import Topology
from penstock.record import TopicPartition
from penstock.state.memory import MemoryBase
from penstock.testing import TestRecord, TopologyTestDriver
from tests.task.calls import ANSWERS, add_answers, answer_to, commit, failure_of
from tests.task.topologies import batch_of, sent, task_of

STRING = Serdes.string()
TEXT = Consumed.with_(STRING, STRING)
PAIRS = Produced.with_(STRING, STRING)
HEADERS = (("trace", b"7"),)
CONTINUE = {"processing.exception.handler": LogAndContinueProcessingExceptionHandler}


@dataclass
class Risk:
    score: float


async def risk(text: str) -> Risk:
    return Risk(len(text) / 10)


async def place(text: str) -> dict[str, str]:
    return {"at": text}


async def failing(text: str) -> str:
    raise ValueError("declined")


async def called_for(text: str, *, call: CallContext) -> str:
    return f"{call.key} {call.timestamp} {call.idempotency_key}"


class Asking(Processor[str, str, str, str]):
    """Calls one function for each record, and forwards its answer."""

    function: Callable[..., Any] = staticmethod(risk)

    def process(self, record: Record[str, str]) -> None:
        self.context.call(self.function, record.value)

    def answered(self, record: Record[str, Any], answer: Any) -> None:
        self.context.forward(record.with_value(f"{record.value}: {answer}"))


def asking(called: Callable[..., Any]) -> type[Asking]:
    class Other(Asking):
        function = staticmethod(called)

    return Other


Build = Callable[[KStream[Any, Any]], KStream[Any, Any]]


def built(build: Build) -> Topology:
    builder = StreamsBuilder()
    build(builder.stream("in", TEXT)).to("out", PAIRS)
    return builder.build()


@pytest.fixture(params=["auto", "record"])
def drive(request: pytest.FixtureRequest) -> Iterator[Callable[..., TopologyTestDriver]]:
    drivers: list[TopologyTestDriver] = []

    def driven(build: Build, **config: Any) -> TopologyTestDriver:
        settings = {"application.id": "app", "penstock.execution": request.param, **config}
        drivers.append(TopologyTestDriver(built(build), settings, 0))
        return drivers[-1]

    yield driven
    for driver in drivers:
        driver.close()


Drive = Callable[..., TopologyTestDriver]


def pipe(driver: TopologyTestDriver, *texts: str) -> None:
    """Write each text; its first letter is the key, and its timestamp the number of the record."""
    rows = [TestRecord(text[0], text, number, HEADERS) for number, text in enumerate(texts)]
    driver.create_input_topic("in", STRING, STRING).pipe_record_list(rows)


def read(driver: TopologyTestDriver, topic: str = "out") -> list[TestRecord[Any, Any]]:
    return driver.create_output_topic(topic, STRING, STRING).read_records_to_list()


def values(driver: TopologyTestDriver, topic: str = "out") -> list[str]:
    return [each.value for each in read(driver, topic)]


def waiting(driver: TopologyTestDriver, node: str = "p") -> int:
    store: Any = driver.get_key_value_store(f"{node}-calls")
    return len(list(store.all()))


def test_an_answer_comes_with_the_key_time_and_headers_of_the_record_and_the_argument(drive: Drive) -> None:
    driver = drive(lambda s: s.process(Asking, named="p", calls=Calls(), call_functions=(risk,)))
    pipe(driver, "a1", *(f"b{n}" for n in range(40)))
    first, *others = read(driver)
    assert first == TestRecord("a", "a1: Risk(score=0.2)", 0, HEADERS)
    assert [each.value.partition(":")[0] for each in others] == [f"b{n}" for n in range(40)]
    assert waiting(driver) == 0


class Chain(Processor[str, str, str, str]):
    """Counts answers in a store, and asks a second function after the first one."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._seen = context.get_state_store("seen")

    def process(self, record: Record[str, str]) -> None:
        self.context.call(risk, record.value)

    def answered(self, record: Record[str, str], answer: Risk | dict[str, str]) -> None:
        count = (self._seen.get(record.key) or 0) + 1
        self._seen.put(record.key, count)
        if isinstance(answer, Risk):
            self.context.call(place, f"{record.value} {answer.score}")
            return
        metadata = self.context.record_metadata
        assert metadata is not None
        self.context.forward(record.with_value(f"{answer['at']} {count} {metadata.topic}-{metadata.offset}"))


class Chains(ProcessorSupplier[str, str, str, str]):
    def get(self) -> Chain:
        return Chain()

    def stores(self) -> list[Any]:
        return [Stores.key_value_store_builder(Stores.in_memory_key_value_store("seen"), STRING, Serdes.integer())]


def test_an_answer_may_use_stores_and_call_again(drive: Drive) -> None:
    driver = drive(lambda s: s.process(Chains(), named="p", calls=Calls(), call_functions=[risk, place]))
    pipe(driver, "a1", "a23")
    assert values(driver) == ["a1 0.2 2 in-0", "a23 0.3 4 in-1"]


def test_given_answers_replace_those_of_each_function(drive: Drive) -> None:
    driver = drive(lambda s: s.process(Chains(), named="p", calls=Calls(), call_functions=[risk, place]))
    driver.answers("p", [Risk(7.0), {"at": "home"}])
    pipe(driver, "a1")
    assert values(driver) == ["home 2 in-0"]


def test_a_call_is_ordered_by_the_key_that_it_names_and_has_a_key_for_services(drive: Drive) -> None:
    class Twice(Asking):
        def process(self, record: Record[str, str]) -> None:
            self.context.call(called_for, record.value)
            self.context.call(called_for, record.value, key="other")

    driver = drive(lambda s: s.process(Twice, named="p", calls=Calls(), call_functions=(called_for,)))
    pipe(driver, "a1")
    assert [(each.key, each.value) for each in read(driver)] == [
        ("a", "a1: a 0 in-0-0-p"),
        ("other", "a1: other 0 in-0-0-p:1"),
    ]


def test_the_keys_for_services_of_a_chain_of_calls_stay_short_and_differ(drive: Drive) -> None:
    seen: list[str] = []

    async def noted(text: str, *, call: CallContext) -> str:
        seen.append(call.idempotency_key)
        return text

    class Polling(Asking):
        function = staticmethod(noted)

        def answered(self, record: Record[str, Any], answer: str) -> None:
            if len(seen) < 600:
                self.context.call(noted, answer)

    driver = drive(lambda s: s.process(Polling, named="p", calls=Calls(), call_functions=(noted,)))
    pipe(driver, "a1")
    assert len(set(seen)) == len(seen) == 600
    assert seen[:2] == ["in-0-0-p", "in-0-0-p/p"]
    assert max(map(len, seen)) <= 502


class Ticking(Asking):
    """Calls in a punctuation, with a key."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, now: int) -> None:
        self.context.call(called_for, "tick", key="k")


def test_a_punctuation_calls_with_its_time_and_the_key_that_it_names(drive: Drive) -> None:
    driver = drive(lambda s: s.process(Ticking, named="p", calls=Calls(), call_functions=(called_for,)))
    driver.advance_wall_clock_time(10)
    assert read(driver) == [TestRecord("k", "tick: k 10 app/0_0/p/1", 10, ())]


def test_a_punctuation_names_a_key(drive: Drive) -> None:
    class Keyless(Ticking):
        def tick(self, now: int) -> None:
            self.context.call(called_for, "tick")

    driver = drive(lambda s: s.process(Keyless, named="p", calls=Calls(), call_functions=(called_for,)))
    with pytest.raises(StreamsError) as caught:
        driver.advance_wall_clock_time(10)
    assert "calls a function in a punctuation without a key" in str(caught.value.__cause__)


def test_a_call_in_init_is_refused(drive: Drive) -> None:
    class Early(Asking):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.call(risk, "x")

    with pytest.raises(StreamsError) as caught:
        drive(lambda s: s.process(Early, named="p", calls=Calls(), call_functions=(risk,)))
    assert "calls a function in init()" in str(caught.value.__cause__)


def test_the_key_of_a_call_is_given_by_name(drive: Drive) -> None:
    class Positional(Asking):
        def process(self, record: Record[str, str]) -> None:
            context: Any = self.context
            context.call(risk, record.key, record.value)

    driver = drive(lambda s: s.process(Positional, named="p", calls=Calls(), call_functions=(risk,)))
    with pytest.raises(StreamsError) as caught:
        pipe(driver, "a1")
    assert "positional argument" in str(caught.value.__cause__)


def test_a_function_that_is_not_declared_is_refused_with_what_to_do(drive: Drive) -> None:
    driver = drive(lambda s: s.process(Asking, named="p", calls=Calls(), call_functions=(place,)))
    with pytest.raises(StreamsError) as caught:
        pipe(driver, "a1")
    assert "Processor p calls <function risk" in str(caught.value.__cause__)
    assert "declares only place: name the function in its call_functions" in str(caught.value.__cause__)


def test_a_processor_without_calls_cannot_call(drive: Drive) -> None:
    driver = drive(lambda s: s.process(Asking, named="p"))
    with pytest.raises(StreamsError) as caught:
        pipe(driver, "a1")
    assert "calls a function, but has no calls: give it calls=Calls(...)" in str(caught.value.__cause__)


class AskingValues(FixedKeyProcessor[str, str, str]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.call(risk, record.value)

    def answered(self, record: FixedKeyRecord[str, str], answer: Risk) -> None:
        self.context.forward(record.with_value(f"{record.value} {answer.score}"))


def test_a_processor_of_values_calls_too(drive: Drive) -> None:
    driver = drive(lambda s: s.process_values(AskingValues, named="p", calls=Calls(), call_functions=(risk,)))
    pipe(driver, "a1", "b1")
    assert [(each.key, each.value) for each in read(driver)] == [("a", "a1 0.2"), ("b", "b1 0.2")]


def test_calls_may_follow_calls(drive: Drive) -> None:
    def build(stream: KStream[Any, Any]) -> KStream[Any, Any]:
        asked = stream.process_values(AskingValues, named="one", calls=Calls(), call_functions=(risk,))
        other = asking(called_for)
        return asked.process(other, named="two", calls=Calls(), call_functions=(called_for,))

    driver = drive(build)
    pipe(driver, "a1")
    assert values(driver) == ["a1 0.2: a 0 in-0-0-one/two"]


def test_a_blocking_function_runs_on_threads(drive: Drive) -> None:
    def blocking(text: str) -> str:
        return text.upper()

    calls = Calls(threads=2)
    driver = drive(lambda s: s.process(asking(blocking), named="p", calls=calls, call_functions=(blocking,)))
    pipe(driver, "a1")
    assert values(driver) == ["a1: A1"]


def test_a_failure_is_raised_with_the_name_of_the_function(drive: Drive) -> None:
    calls = Calls(retry=Retry(attempts=2))
    driver = drive(lambda s: s.process(asking(failing), named="p", calls=calls, call_functions=(failing,)))
    with pytest.raises(StreamsError, match="processor=p-calls, topic=in, partition=0, offset=0") as caught:
        pipe(driver, "a1")
    assert "ValueError: declined" in str(caught.value.__cause__)


def test_a_failed_call_is_skipped_and_counted(drive: Drive) -> None:
    calls = Calls(on_failure="skip")
    driver = drive(lambda s: s.process(asking(failing), named="p", calls=calls, call_functions=(failing,)))
    driver.answers("p", [ValueError("declined"), "yes"])
    pipe(driver, "a1", "b1")
    assert values(driver) == ["b1: yes"]
    assert waiting(driver) == 0


def test_a_failed_call_is_a_dead_letter_with_the_input_record(drive: Drive) -> None:
    calls = Calls(then="letters")
    driver = drive(lambda s: s.process(asking(failing), named="p", calls=calls, call_functions=(failing,)))
    pipe(driver, "a1")
    (letter,) = read(driver, "letters")
    assert (letter.key, letter.value) == ("a", "a1")


def test_the_dead_letter_of_a_punctuation_has_the_argument(drive: Drive) -> None:
    class Failing(Ticking):
        def tick(self, now: int) -> None:
            self.context.call(failing, "tick", key="k")

    calls = Calls(then="letters", value_serde=STRING)
    driver = drive(lambda s: s.process(Failing, named="p", calls=calls, call_functions=(failing,)))
    driver.advance_wall_clock_time(10)
    (letter,) = read(driver, "letters")
    assert (letter.key, letter.value) == ("k", "tick")


class Recovering(Asking):
    """Forwards each failure, and asks another function for the key `a`."""

    function = staticmethod(failing)

    def failed(self, record: Record[str, Any], error: CallFailedError) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        self.context.forward(record.with_value(f"{record.value} {metadata.offset}: {error}"))
        if record.key == "a":
            self.context.call(called_for, "again")


FAILED = "The call of p failed at attempt 1: ValueError: declined"


def test_a_processor_receives_the_failures_of_its_calls(drive: Drive) -> None:
    functions = failing, called_for
    driver = drive(lambda s: s.process(Recovering, named="p", calls=Calls(), call_functions=functions))
    pipe(driver, "a1", "b1")
    assert read(driver) == [
        TestRecord("a", f"a1 0: {FAILED}", 0, HEADERS),
        TestRecord("a", "again: a 0 in-0-0-p/p", 0, HEADERS),
        TestRecord("b", f"b1 1: {FAILED}", 1, HEADERS),
    ]
    assert waiting(driver) == 0
    assert driver.dropped_records() == 0


def test_an_error_of_failed_is_one_of_the_processor(drive: Drive) -> None:
    class Raising(Recovering):
        def failed(self, record: Record[str, Any], error: CallFailedError) -> None:
            raise error

    driver = drive(lambda s: s.process(Raising, named="p", calls=Calls(), call_functions=(failing,)))
    with pytest.raises(StreamsError, match="processor=p, topic=in, partition=0, offset=0"):
        pipe(driver, "a1")


def test_a_processor_of_values_receives_failures_too(drive: Drive) -> None:
    class Defaulting(AskingValues):
        def failed(self, record: FixedKeyRecord[str, str], error: CallFailedError) -> None:
            self.context.forward(record.with_value(f"{record.value} without a risk"))

    driver = drive(lambda s: s.process_values(Defaulting, named="p", calls=Calls(), call_functions=(risk,)))
    driver.answers("p", [ValueError("declined")])
    pipe(driver, "a1")
    assert values(driver) == ["a1 without a risk"]


class Refusing(Asking):
    """Forwards an answer, and then fails on that of the key `a`."""

    def answered(self, record: Record[str, Any], answer: Any) -> None:
        super().answered(record, answer)
        if record.key == "a":
            raise ValueError(f"unusable: {answer}")


def test_an_error_of_answered_is_one_of_the_processor(drive: Drive) -> None:
    driver = drive(lambda s: s.process(Refusing, named="p", calls=Calls(), call_functions=(risk,)))
    with pytest.raises(StreamsError, match="processor=p, topic=in, partition=0, offset=0") as caught:
        pipe(driver, "a1")
    assert "unusable: Risk(score=0.2)" in str(caught.value.__cause__)


def test_a_handler_goes_on_after_an_error_of_answered(drive: Drive) -> None:
    config = {**CONTINUE, DEAD_LETTER_QUEUE_TOPIC: "letters"}
    driver = drive(lambda s: s.process(Refusing, named="p", calls=Calls(), call_functions=(risk,)), **config)
    pipe(driver, "a1", "b1")
    assert values(driver) == ["a1: Risk(score=0.2)", "b1: Risk(score=0.2)"]
    assert values(driver, "letters") == ["a1"]
    assert waiting(driver) == 0


def test_an_argument_that_the_serde_does_not_write_is_an_error_of_the_record(drive: Drive) -> None:
    class Objects(Asking):
        def process(self, record: Record[str, str]) -> None:
            untyped: Any = object()
            self.context.call(risk, untyped)

    driver = drive(lambda s: s.process(Objects, named="p", calls=Calls(), call_functions=(risk,)))
    with pytest.raises(StreamsError) as caught:
        pipe(driver, "a1")
    assert "Name the serde of the values in Calls, with value_serde=" in str(caught.value.__cause__)


class Noted(ProcessorWrapper):
    """Wraps each processor of a user so that it marks records."""

    def wrap_processor_supplier(self, processor_name: str, supplier: ProcessorSupplier) -> ProcessorSupplier:
        return _Marking(supplier) if processor_name == "p" else supplier


class _Marking(ProcessorSupplier):
    def __init__(self, inner: ProcessorSupplier) -> None:
        self._inner = inner

    def get(self) -> Processor:
        return _Marked(self._inner.get())


class _Marked(Processor):
    def __init__(self, inner: Processor) -> None:
        self._inner = inner

    def init(self, context: ProcessorContext) -> None:
        self._inner.init(context)

    def process(self, record: Record[Any, Any]) -> None:
        self._inner.process(record.with_value(f"({record.value})"))

    def answered(self, record: Record[Any, Any], answer: Any) -> None:
        self._inner.answered(record, f"<{answer}>")


def test_a_wrapper_wraps_the_processor_of_the_user() -> None:
    builder = StreamsBuilder(TopologyConfig({"processor.wrapper.class": Noted}))
    stream = builder.stream("in", TEXT)
    stream.process(Asking, named="p", calls=Calls(), call_functions=(risk,)).to("out", PAIRS)
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "a1")
        assert values(driver) == ["(a1): <Risk(score=0.4)>"]


def restarted(base: MemoryBase, *functions: Callable[..., Any], processor: Any = None) -> Any:
    other = processor or asking(functions[0])
    topology = built(lambda s: s.process(other, named="call", calls=Calls(), call_functions=functions))
    return task_of(topology, base=base)


def test_a_call_that_waits_is_made_after_a_restart() -> None:
    base = MemoryBase()
    task = restarted(base, called_for)
    task.add_records("in", 0, batch_of(("a", "a1", 5)))
    task.process()
    commit(task)
    again = restarted(base, called_for)
    (call,) = again.take_calls()["call"]
    assert call[1].call_id == "in-0-0-call"
    add_answers(again, answer_to(call, "yes"))
    again.process()
    assert sent(again) == [("out", "a", "a1: yes", 5)]


def test_a_task_with_too_many_waiting_calls_takes_only_answers() -> None:
    other, calls = asking(called_for), Calls(max_records=2)
    task = task_of(built(lambda s: s.process(other, named="call", calls=calls, call_functions=(called_for,))))
    task.add_records("in", 0, batch_of(("a", "a1", 5)))
    task.process()
    assert not task.waits_for_answers
    task.add_records("in", 0, batch_of(("b", "b1", 6), first_offset=1))
    task.process()
    assert task.adds_calls
    assert task.waits_for_answers
    commit(task)
    first, _ = task.take_calls()["call"]
    add_answers(task, answer_to(first, "yes"))
    task.process()
    assert not task.waits_for_answers


def test_a_failure_that_ended_the_task_is_ignored_after_a_restart() -> None:
    task = restarted(MemoryBase(), called_for)
    task.add_records("in", 0, batch_of(("a", "a1", 5)))
    task.process()
    commit(task)
    (call,) = task.take_calls()["call"]
    task.call_again_before({TopicPartition(ANSWERS, 0): 1})
    add_answers(task, failure_of(call))
    add_answers(task, answer_to(call, "yes"), first_offset=1)
    task.process()
    assert sent(task) == [("out", "a", "a1: yes", 5)]


def test_a_failure_for_the_processor_counts_after_a_restart() -> None:
    base = MemoryBase()
    task = restarted(base, failing, called_for, processor=Recovering)
    task.add_records("in", 0, batch_of(("b", "b1", 5)))
    task.process()
    commit(task)
    (call,) = task.take_calls()["call"]
    again = restarted(base, failing, called_for, processor=Recovering)
    again.call_again_before({TopicPartition(ANSWERS, 0): 1})
    add_answers(again, failure_of(call))
    add_answers(again, answer_to(call, "yes"), first_offset=1)
    again.process()
    assert sent(again) == [("out", "b", "b1 0: The call of call failed at attempt 1: OSError: no answer", 5)]


def test_a_call_of_a_function_that_has_another_name_now_stops_the_start() -> None:
    base = MemoryBase()
    task = restarted(base, called_for)
    task.add_records("in", 0, batch_of(("a", "a1", 5)))
    task.process()
    commit(task)
    with pytest.raises(StreamsError, match="failed to initialize processor call") as caught:
        restarted(base, risk)
    assert (
        str(caught.value.__cause__) == "A call of the function called_for waits for processor call, which declares "
        "only risk. Name a function called_for in its call_functions until its calls are answered."
    )
    both = restarted(base, risk, called_for)
    assert len(both.take_calls()["call"]) == 1
