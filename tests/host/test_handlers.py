"""Handlers of errors on each host: of records that cannot be read, of functions that fail, of records that brokers
refuse; dead letters go out with the rest."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from penstock import Consumed, Serdes, StreamsBuilder, Topology
from penstock.client.api import NewTopic
from penstock.errors import StreamsError
from penstock.exception_handlers import ErrorHandlerContext, ProducerRecord, ProductionExceptionHandler, Response
from penstock.metrics.host_metrics import DEAD_LETTER_RECORDS, Operation
from tests.host.support import WITH_A_SESSION, InputRecord, Program, Runner, lines, run_to_end
from tests.host.test_topologies import TEXT, TEXT_OUT

GUARANTEES = pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])


@pytest.fixture
def topics(runner: Runner, unique_name: Callable[[str], str]) -> tuple[str, str, str]:
    """A topic to read from, one that takes only small records, and one for dead letters."""
    source, target, letters = unique_name("in"), unique_name("out"), unique_name("letters")
    runner.create_topics({source: 1, letters: 1})
    small = {"retention.ms": "-1", "max.message.bytes": "2000"}
    runner.admin.create_topics([NewTopic(target, 1, 1, small)])
    return source, target, letters


def copying(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).map_values(str.upper).to(target, produced=TEXT_OUT)
    return builder.build()


def dividing(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    numbers = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.long()))
    numbers.map_values(lambda value: str(12 // value)).to(target, produced=TEXT_OUT)
    return builder.build()


class GoesOn(ProductionExceptionHandler):
    """Goes on without the record, and writes where it was made."""

    def __init__(self, letters: str) -> None:
        self._letters = letters

    def handle_error(self, context: ErrorHandlerContext, record: ProducerRecord, error: Exception) -> Response:
        size = len(record.value)
        text = f"{context.task_id} {context.processor_node_id} {record.topic} {size} {type(error).__name__}"
        return Response.resume([ProducerRecord(self._letters, None, text.encode(), context.timestamp)])


@pytest.mark.one_broker
@GUARANTEES
def test_a_refused_record_ends_the_application_with_its_topic_and_sink(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str, str], guarantee: str
) -> None:
    source, target, _ = topics
    runner.write(source, lines(["a", "b" * 5_000]))
    program = start(copying(source, target), runner.config(application, {"processing.guarantee": guarantee}))
    with pytest.raises(StreamsError) as caught:
        program.run_to_end()
    message = str(caught.value)
    assert f"Error encountered sending a record to topic {target} for task 0_0, sink KSTREAM-SINK-0000000002" in message
    assert re.search(r"\(created at .*\.py:\d+\)", message)
    assert "production.exception.handler" in message


@GUARANTEES
def test_a_handler_may_continue_without_a_refused_record(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str, str], guarantee: str
) -> None:
    source, target, letters = topics
    values = {"production.exception.handler": GoesOn(letters), "processing.guarantee": guarantee}
    runner.write(source, lines(["a", "b" * 5_000, "c"]))
    program = start(copying(source, target), runner.config(application, values))
    program.run_to_end()
    runner.write(source, lines(["d"]))
    program.run_to_end()
    written, dead = ([record.value for record in runner.read(topic)] for topic in (target, letters))
    if guarantee == "at_least_once":  # the records of the commit may be written again
        written, dead = list(dict.fromkeys(written)), list(dict.fromkeys(dead))
    assert written == [b"A", b"C", b"D"]
    assert dead == [f"0_0 KSTREAM-SINK-0000000002 {target} 5000 RecordTooLargeError".encode()]


@pytest.mark.one_broker
def test_dead_letters_are_written_of_records_that_cannot_be_read_or_processed(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str, str]
) -> None:
    source, target, letters = topics
    values = {
        "deserialization.exception.handler": "LogAndContinueExceptionHandler",
        "processing.exception.handler": "LogAndContinueProcessingExceptionHandler",
        "errors.dead.letter.queue.topic.name": letters,
    }
    program = start(dividing(source, target), runner.config(application, values))
    written = [b"short", bytes(8), (3).to_bytes(8, "big")]
    runner.write(source, [InputRecord(b"k", value, 1_000) for value in written])
    program.run_to_end()
    assert [record.value for record in runner.read(target)] == [b"4"]
    dead = runner.read(letters)
    assert [(record.key, record.value) for record in dead] == [(b"k", b"short"), (b"k", bytes(8))]


@WITH_A_SESSION
@pytest.mark.one_broker
@pytest.mark.slow
def test_dead_letters_are_counted(runner: Runner, application: str, topics: tuple[str, str, str]) -> None:
    source, target, letters = topics
    values = {
        "deserialization.exception.handler": "LogAndContinueExceptionHandler",
        "processing.exception.handler": "LogAndContinueProcessingExceptionHandler",
        "errors.dead.letter.queue.topic.name": letters,
    }
    written = [b"short", bytes(8), (3).to_bytes(8, "big")]
    runner.write(source, [InputRecord(b"k", value, 1_000) for value in written])
    host = runner.host(dividing(source, target), runner.config(application, values), until_end=True)
    assert run_to_end(host).statistics.dropped == {"0_0": 2}
    assert host.measured().operations[Operation(DEAD_LETTER_RECORDS, "0_0")].number == 2


@pytest.mark.one_broker
@pytest.mark.parametrize("value", [b"short", bytes(8)], ids=["deserialization", "processing"])
def test_without_a_handler_the_first_such_record_ends_the_application(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str, str], value: bytes
) -> None:
    source, target, _ = topics
    program = start(dividing(source, target), runner.config(application))
    runner.write(source, [InputRecord(b"k", value, 1_000)])
    with pytest.raises(StreamsError, match=source):
        program.run_to_end()
