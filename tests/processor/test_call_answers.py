"""Operators with calls in the test driver: every method, order and failure, in both executions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Literal

import pytest

from penstock import (
    CallContext,
    Calls,
    KStream,
    KTable,
    Processor,
    ProcessorWrapper,
    Record,
    Retry,
    Serdes,
    StreamsBuilder,
)
from penstock.errors import CallFailedError, ProcessorStateError, StreamsError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC, LogAndContinueProcessingExceptionHandler
from penstock.processor.calls import Answer
from penstock.record import Headers
from penstock.serdes import StringSerde
from penstock.testing import TestRecord, TopologyTestDriver

STRING = Serdes.string()
HEADERS = (("trace", b"7"),)
CONTINUE = {"processing.exception.handler": LogAndContinueProcessingExceptionHandler}
ORDERS: list[Literal["key", "partition", "unordered"]] = ["key", "partition", "unordered"]

Build = Callable[[KStream[Any, Any]], KStream[Any, Any] | None]


class Driven:
    """A driver of one operator between the topics in and out."""

    def __init__(self, build: Build, **config: Any) -> None:
        builder = StreamsBuilder()
        built = build(builder.stream("in"))
        if built is not None:
            built.to("out")
        defaults = {"application.id": "app", "default.key.serde": STRING, "default.value.serde": STRING}
        self.driver = TopologyTestDriver(builder.build(), {**defaults, **config}, 0)
        self.input = self.driver.create_input_topic("in", STRING, STRING)
        self.written = 0

    def pipe(self, *texts: str) -> None:
        """Write each text; its first letter is the key, "-" for null, and its timestamp the number of the record."""
        for text in texts:
            key = None if text[0] == "-" else text[0]
            self.input.pipe_input(TestRecord(key, text, self.written, HEADERS))
            self.written += 1

    def read(self, topic: str = "out") -> list[TestRecord[Any, Any]]:
        return self.driver.create_output_topic(topic, STRING, STRING).read_records_to_list()

    def pairs(self, topic: str = "out") -> list[tuple[Any, Any]]:
        return [(each.key, each.value) for each in self.read(topic)]

    def waiting(self, node: str = "call") -> int:
        store: Any = self.driver.get_key_value_store(f"{node}-calls")
        return len(list(store.all()))


@pytest.fixture(params=["auto", "record"])
def drive(request: pytest.FixtureRequest) -> Iterator[Callable[..., Driven]]:
    drivers: list[TopologyTestDriver] = []

    def driven(build: Build, **config: Any) -> Driven:
        made = Driven(build, **{"penstock.execution": request.param, **config})
        drivers.append(made.driver)
        return made

    yield driven
    for driver in drivers:
        driver.close()


Drive = Callable[..., Driven]


async def upper(value: str) -> str:
    await asyncio.sleep(0)
    return value.upper()


async def keyed(key: str, value: str) -> str:
    return f"{key}:{value}"


async def swapped(key: str, value: str) -> tuple[str, str]:
    return value, key


async def both(key: str, value: str) -> list[tuple[str, str]]:
    return [(key, value), (value, key)]


async def letters(value: str) -> list[str]:
    return list(value)


async def is_first(key: str, value: str) -> bool:
    return value.endswith("1")


async def value_of(key: str, value: str) -> str:
    return value


def counted(table: KTable[Any, Any]) -> KStream[Any, Any]:
    return table.to_stream().map_values(str)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s, c: s.map_values(upper, "call", calls=c), [("a", "A1"), ("b", "B2")]),
        (lambda s, c: s.map_values(keyed, "call", calls=c), [("a", "a:a1"), ("b", "b:b2")]),
        (lambda s, c: s.map(swapped, "call", calls=c), [("a1", "a"), ("b2", "b")]),
        (lambda s, c: s.flat_map(both, "call", calls=c), [("a", "a1"), ("a1", "a"), ("b", "b2"), ("b2", "b")]),
        (lambda s, c: s.flat_map_values(letters, "call", calls=c), [("a", "a"), ("a", "1"), ("b", "b"), ("b", "2")]),
        (lambda s, c: s.filter(is_first, "call", calls=c), [("a", "a1")]),
        (lambda s, c: s.filter_not(is_first, "call", calls=c), [("b", "b2")]),
        (lambda s, c: s.peek(keyed, "call", calls=c), [("a", "a1"), ("b", "b2")]),
        (lambda s, c: s.foreach(keyed, "call", calls=c), []),
        (lambda s, c: s.select_key(value_of, "call", calls=c), [("a1", "a1"), ("b2", "b2")]),
        (lambda s, c: counted(s.group_by(value_of, calls=c).count()), [("a1", "1"), ("b2", "1")]),
    ],
)
def test_results_are_those_of_the_function(drive: Drive, build: Any, expected: Any, order: Any) -> None:
    driven = drive(lambda stream: build(stream, Calls(order=order)))
    driven.pipe("a1", "b2")
    produced = driven.read() if expected else []
    assert [(each.key, each.value) for each in produced] == expected
    assert all((each.timestamp, each.headers) in ((0, HEADERS), (1, HEADERS)) for each in produced if each.headers)


def test_a_result_has_the_context_of_its_record(drive: Drive) -> None:
    driven = drive(lambda stream: stream.map_values(upper, "call", calls=Calls()))
    driven.pipe("a1", "-2")
    assert driven.read() == [TestRecord("a", "A1", 0, HEADERS), TestRecord(None, "-2", 1, HEADERS)]
    assert driven.waiting() == 0


def test_a_blocking_function_runs_on_threads(drive: Drive) -> None:
    driven = drive(lambda stream: stream.map_values(str.upper, "call", calls=Calls(threads=2)))
    driven.pipe("a1")
    assert driven.pairs() == [("a", "A1")]


def test_a_blocking_function_gets_its_client(drive: Drive) -> None:
    def asked(value: str, *, client: str) -> str:
        return f"{client} {value}"

    calls = Calls(threads=2, open=lambda: nullcontext("client"))
    driven = drive(lambda stream: stream.map_values(asked, "call", calls=calls))
    driven.pipe("a1")
    assert driven.pairs() == [("a", "client a1")]


def test_a_wrapper_of_processors_leaves_calls_as_they_are(drive: Drive) -> None:
    class Wrapper(ProcessorWrapper):
        def wrap_processor(self, processor_name: str, processor_supplier: Any) -> Any:
            return processor_supplier

    driven = drive(
        lambda stream: stream.map_values(upper, "call", calls=Calls()), **{"processor.wrapper.class": Wrapper}
    )
    driven.pipe("a1")
    assert driven.pairs() == [("a", "A1")]


def test_a_result_of_none_is_none(drive: Drive) -> None:
    async def nothing(value: str) -> str | None:
        return None

    driven = drive(lambda stream: stream.map_values(nothing, "call", calls=Calls()))
    driven.pipe("a1")
    assert driven.pairs() == [("a", None)]


def test_the_function_gets_the_client_and_the_call(drive: Drive) -> None:
    seen: list[CallContext] = []
    events: list[str] = []

    class Client:
        async def __aenter__(self) -> str:
            events.append("opened")
            return "client"

        async def __aexit__(self, *error: object) -> None:
            events.append("closed")

    async def asked(value: str, *, client: str, call: CallContext) -> str:
        seen.append(call)
        if call.attempt == 1:
            raise OSError("no answer")
        return f"{client} {value}"

    calls = Calls(open=Client, retry=Retry(attempts=2))
    driven = drive(lambda stream: stream.map_values(asked, "call", calls=calls))
    driven.pipe("a1", "b2")
    assert driven.pairs() == [("a", "client a1"), ("b", "client b2")]
    assert [(each.offset, each.key, each.attempt) for each in seen] == [
        (0, "a", 1),
        (0, "a", 2),
        (1, "b", 1),
        (1, "b", 2),
    ]
    assert seen[0] == CallContext(
        topic="in",
        partition=0,
        offset=0,
        key="a",
        timestamp=0,
        headers=HEADERS,
        attempt=1,
        idempotency_key="in-0-0-call",
    )
    driven.driver.close()
    assert events == ["opened", "closed"]


def test_records_of_one_input_record_have_keys_of_their_own(drive: Drive) -> None:
    seen = []

    async def note(value: str, *, call: CallContext) -> str:
        seen.append(call.idempotency_key)
        return value

    driven = drive(lambda s: s.flat_map_values(lambda v: [v, v, v]).map_values(note, "call", calls=Calls()))
    driven.pipe("a1", "a2")
    assert seen == ["in-0-0-call", "in-0-0-call:1", "in-0-0-call:2", "in-0-1-call", "in-0-1-call:1", "in-0-1-call:2"]
    assert len(driven.pairs()) == 6


def failing(attempts: int = 1, **options: Any) -> Calls:
    return Calls(retry=Retry(attempts=attempts, on=OSError), **options)


async def down(value: str) -> str:
    raise OSError(f"no answer for {value}")


async def wrong(value: str) -> str:
    raise ValueError(f"wrong {value}")


def test_a_failed_call_fails_the_task_with_the_place_of_the_record(drive: Drive) -> None:
    driven = drive(lambda stream: stream.map_values(down, "call", calls=failing(3)))
    with pytest.raises(StreamsError, match="processor=call, topic=in, partition=0, offset=0") as raised:
        driven.pipe("a1")
    cause = raised.value.__cause__
    assert isinstance(cause, CallFailedError)
    assert str(cause) == "The call of call failed at attempt 3: OSError: no answer for a1"
    assert "in down" in "".join(cause.__notes__)


def test_other_errors_are_not_tried_again(drive: Drive) -> None:
    driven = drive(lambda stream: stream.map_values(wrong, "call", calls=failing(3)))
    with pytest.raises(StreamsError) as raised:
        driven.pipe("a1")
    assert "failed at attempt 1: ValueError: wrong a1" in str(raised.value.__cause__)


def test_a_handler_may_continue_and_keep_the_record(drive: Drive) -> None:
    config = {**CONTINUE, DEAD_LETTER_QUEUE_TOPIC: "letters"}
    driven = drive(lambda stream: stream.map_values(down, "call", calls=failing()), **config)
    driven.pipe("a1", "b2")
    assert driven.driver.queue_size("out") == 0
    assert driven.pairs("letters") == [("a", "a1"), ("b", "b2")]
    assert (driven.waiting(), driven.driver.dropped_records()) == (0, 2)


def test_a_failed_call_may_be_skipped(drive: Drive) -> None:
    driven = drive(lambda stream: stream.map_values(down, "call", calls=failing(on_failure="skip")))
    driven.pipe("a1")
    assert driven.driver.queue_size("out") == 0
    assert (driven.waiting(), driven.driver.dropped_records()) == (0, 1)


def test_a_failed_call_may_be_a_dead_letter(drive: Drive) -> None:
    driven = drive(lambda stream: stream.map_values(down, "call", calls=failing(2, then="letters")))
    driven.pipe("a1")
    (letter,) = driven.read("letters")
    assert (letter.key, letter.value, letter.timestamp) == ("a", "a1", 0)
    headers = dict(letter.headers)
    assert headers["trace"] == b"7"
    assert headers["__streams.errors.message"] == b"The call of call failed at attempt 2: OSError: no answer for a1"
    assert (headers["__streams.errors.topic"], headers["__streams.errors.offset"]) == (b"in", b"0")


def test_a_call_that_takes_too_long_fails(drive: Drive) -> None:
    async def forever(value: str) -> str:
        await asyncio.Event().wait()
        return value

    driven = drive(lambda stream: stream.map_values(forever, "call", calls=Calls(timeout=100, then="letters")))
    driven.pipe("a1")
    (letter,) = driven.read("letters")
    assert b"TimeoutError: The call of call for in-0, offset 0, did not end within 100 ms." in (
        dict(letter.headers)["__streams.errors.message"] or b""
    )


def test_a_result_that_cannot_be_kept_is_paid_once(drive: Drive) -> None:
    made = []

    async def odd(value: str):  # type: ignore[no-untyped-def]  # without an annotation on purpose
        made.append(value)
        return (value, 1)

    driven = drive(lambda stream: stream.map_values(odd, "call", calls=Calls(retry=Retry(attempts=3))))
    with pytest.raises(StreamsError) as raised:
        driven.pipe("a1")
    assert "Annotate the result of the function" in str(raised.value.__cause__)
    assert made == ["a1"]


@pytest.mark.parametrize(
    ("build", "result", "expected"),
    [
        (lambda s, f: s.map(f, "call", calls=Calls(threads=1)), ("k", "v"), [("k", "v")]),
        (
            lambda s, f: s.flat_map(f, "call", calls=Calls(threads=1)),
            [("k", "v"), ("l", "w")],
            [("k", "v"), ("l", "w")],
        ),
        (lambda s, f: s.flat_map_values(f, "call", calls=Calls(threads=1)), ("v", "w"), [("a", "v"), ("a", "w")]),
    ],
)
def test_results_without_an_annotation_have_the_shape_of_the_operator(
    drive: Drive, build: Any, result: Any, expected: Any
) -> None:
    driven = drive(lambda stream: build(stream, lambda key, value: result))
    driven.pipe("a1")
    assert driven.pairs() == expected


def test_given_answers_replace_the_function(drive: Drive) -> None:
    driven = drive(lambda stream: stream.map_values(down, "call", calls=failing(2)))
    driven.driver.answers("call", [OSError("once"), "one", "two"])
    driven.pipe("a1", "b2")
    assert driven.pairs() == [("a", "one"), ("b", "two")]
    with pytest.raises(ValueError, match="Operator 'other' has no calls; those with calls: call"):
        driven.driver.answers("other", [])


def test_answers_without_a_waiting_record_are_ignored(drive: Drive) -> None:
    driven = drive(lambda stream: stream.map_values(upper, "call", calls=Calls()))
    driven.pipe("a1")
    for answer in (Answer(1, b"12345678", 1, b"\xa1x"), Answer(9, b"12345678", 1, b"\xa1x")):
        driven.driver.pipe_bytes("app-call-answers", bytes(8), answer.pack(), 5)
    assert driven.pairs() == [("a", "A1")]


class OddSerde(StringSerde):
    """Cannot read one text."""

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        if data == b"b2":
            raise ValueError("odd")
        return super().deserialize(topic, data, headers)


def test_a_record_that_cannot_be_read_leaves_the_answers_of_others(drive: Drive) -> None:
    config = {**CONTINUE, DEAD_LETTER_QUEUE_TOPIC: "letters"}
    calls = Calls(value_serde=OddSerde())
    driven = drive(lambda stream: stream.map_values(upper, "call", calls=calls), **config)
    driven.pipe("a1", "b2", "c3", "d4")
    assert driven.pairs() == [("a", "A1"), ("c", "C3"), ("d", "D4")]
    assert driven.pairs("letters") == [("b", "b2")]
    assert (driven.waiting(), driven.driver.dropped_records()) == (0, 1)


def test_answers_have_no_part_in_the_minimum_of_stream_time(drive: Drive) -> None:
    times: list[int] = []

    class Noting(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            times.append(self.context.current_stream_time_ms())

    def build(stream: KStream[Any, Any]) -> None:
        stream.map_values(upper, "call", calls=Calls()).process(Noting)

    driven = drive(build, **{"stream.time.policy": "min"})
    driven.pipe("a1", "a2", "a3")
    assert times == [0, 1, 2]


def test_a_client_that_cannot_be_left_ends_the_task(drive: Drive) -> None:
    events: list[str] = []

    class Client:
        def __enter__(self) -> str:
            return "client"

        def __exit__(self, *error: object) -> None:
            events.append("left")
            raise OSError("not left")

    class Closing(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            pass

        def close(self) -> None:
            events.append("closed")

    async def asked(value: str, *, client: str) -> str:
        return f"{client} {value}"

    def build(stream: KStream[Any, Any]) -> None:
        stream.map_values(asked, "call", calls=Calls(open=Client)).process(Closing)

    driven = drive(build)
    driven.pipe("a1")
    with pytest.raises(OSError, match="not left"):
        driven.driver.close()
    assert events == ["left", "closed"]


def test_a_damaged_answer_fails(drive: Drive) -> None:
    driven = drive(lambda stream: stream.map_values(upper, "call", calls=Calls()))
    with pytest.raises(StreamsError) as raised:
        driven.driver.pipe_bytes("app-call-answers", bytes(8), b"\x02\xff", 5)
    assert isinstance(raised.value.__cause__, ProcessorStateError)
    assert "'app-call-answers' has a damaged answer" in str(raised.value.__cause__)


def test_operators_with_calls_may_follow_each_other(drive: Drive) -> None:
    def build(stream: KStream[Any, Any]) -> KStream[Any, Any]:
        first = stream.map_values(upper, "one", calls=Calls()).select_key(value_of, "two", calls=Calls())
        return first.repartition().map_values(keyed, "three", calls=Calls())

    driven = drive(build)
    driven.pipe("a1", "b2")
    assert driven.pairs() == [("A1", "A1:A1"), ("B2", "B2:B2")]
