"""Handlers of errors by themselves: their responses, dead letters and log lines."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock import exception_handlers
from penstock.exception_handlers import (
    BUILT_IN,
    DEAD_LETTER_QUEUE_TOPIC,
    DefaultProductionExceptionHandler,
    DeserializationExceptionHandler,
    ErrorHandlerContext,
    ExceptionHandler,
    LogAndContinueExceptionHandler,
    LogAndFailExceptionHandler,
    ProcessingExceptionHandler,
    ProducerRecord,
    ProductionExceptionHandler,
    Response,
    Result,
    SerializationExceptionOrigin,
)

CONTEXT = ErrorHandlerContext("in", 2, 7, (("own", b"1"),), "node", "0_2", 50, b"key", b"value")
RECORD = ProducerRecord("out", "k", object(), 50)


def failed() -> Exception:
    """Return an error that was raised, with its traceback."""
    try:
        raise ValueError("ä is wrong")
    except ValueError as error:
        return error


def configured(kind: type[ExceptionHandler], config: dict[str, Any]) -> Any:
    handler = kind()
    handler.configure(config)
    return handler


@pytest.mark.parametrize("kind", BUILT_IN.values())
@pytest.mark.parametrize("config", [{}, {DEAD_LETTER_QUEUE_TOPIC: None}, {DEAD_LETTER_QUEUE_TOPIC: "letters"}])
def test_a_built_in_handler_continues_or_fails_with_a_dead_letter_if_set(
    kind: type[ExceptionHandler], config: dict[str, Any]
) -> None:
    response = configured(kind, config).handle_error(CONTEXT, RECORD, failed())
    assert response.result is (Result.RESUME if "Continue" in kind.__name__ else Result.FAIL)
    letters = [(letter.topic, letter.key, letter.value) for letter in response.dead_letter_queue_records]
    assert letters == ([("letters", b"key", b"value")] if config.get(DEAD_LETTER_QUEUE_TOPIC) else [])


def test_every_concrete_handler_is_built_in_under_its_kafka_name() -> None:
    kinds = (DeserializationExceptionHandler, ProcessingExceptionHandler, ProductionExceptionHandler)
    defined = [each for each in vars(exception_handlers).values() if isinstance(each, type)]
    concrete = {each.__name__: each for each in defined if issubclass(each, kinds) and each not in kinds}
    assert dict(BUILT_IN) == concrete


def test_a_dead_letter_has_the_source_record_and_the_error_in_headers() -> None:
    error = failed()
    handler = configured(LogAndContinueExceptionHandler, {DEAD_LETTER_QUEUE_TOPIC: "letters"})
    (letter,) = handler.dead_letter_queue_records(CONTEXT, error)
    assert letter[:4] == ("letters", b"key", b"value", 50)
    assert letter.partition is None
    headers = dict(letter.headers)
    stacktrace = headers.pop("__streams.errors.stacktrace").decode()
    assert 'raise ValueError("ä is wrong")' in stacktrace
    assert headers == {
        "own": b"1",
        "__streams.errors.exception": b"builtins.ValueError",
        "__streams.errors.message": "ä is wrong".encode(),
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"2",
        "__streams.errors.offset": b"7",
    }


def test_a_dead_letter_of_a_punctuator_has_no_source_topic() -> None:
    handler = configured(LogAndFailExceptionHandler, {DEAD_LETTER_QUEUE_TOPIC: "letters"})
    (letter,) = handler.dead_letter_queue_records(ErrorHandlerContext(None, -1, -1, (), "node", "0_2", 50), failed())
    assert (letter.key, letter.value, dict(letter.headers)["__streams.errors.topic"]) == (None, None, None)


def test_only_the_default_adds_a_dead_letter_to_a_serialization_error() -> None:
    for kind, letters in ((ProductionExceptionHandler, 0), (DefaultProductionExceptionHandler, 1)):
        handler = configured(kind, {DEAD_LETTER_QUEUE_TOPIC: "letters"})
        response = handler.handle_serialization_error(CONTEXT, RECORD, failed(), SerializationExceptionOrigin.VALUE)
        assert (response.result, len(response.dead_letter_queue_records)) == (Result.FAIL, letters)


def test_responses_hold_their_records_as_a_tuple() -> None:
    records = [RECORD, RECORD._replace(topic="other")]
    assert Response.resume(iter(records)) == Response(Result.RESUME, tuple(records))
    assert Response.fail(iter(records)) == Response(Result.FAIL, tuple(records))
    assert Response.retry() == Response(Result.RETRY, ())


@pytest.mark.parametrize(
    "kind", [DeserializationExceptionHandler, ProcessingExceptionHandler, ProductionExceptionHandler]
)
def test_a_handler_without_handle_error_names_its_class(kind: type[Any]) -> None:
    incomplete = type("Incomplete", (kind,), {})
    with pytest.raises(NotImplementedError, match=r"Incomplete must define handle_error\(self, context, record, error"):
        incomplete().handle_error(CONTEXT, RECORD, failed())


def test_a_log_line_has_the_place_but_not_the_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        configured(LogAndContinueExceptionHandler, {}).handle_error(CONTEXT, RECORD, failed())
    place = "processor node: node, taskId: 0_2, source topic: in, source partition: 2, source offset: 7"
    assert caplog.messages == [f"Exception caught during Deserialization, {place}"]
