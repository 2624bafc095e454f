"""Handlers of errors in reading, processing and writing records, and their responses.

Kafka package: org.apache.kafka.streams.errors.

A handler is configured as a class or an object, and decides for each record whether to continue without it or to fail.
Either response may carry records for a dead letter queue. If `errors.dead.letter.queue.topic.name` is set, the built-in
handlers add one: the unmodified source record, with the error in its headers (KIP-1034).
"""

from __future__ import annotations

import logging
import traceback
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from penstock.record import ConsumerRecord, Headers, Record, RecordMetadata
from penstock_broker.common.log_limits import limit_rate

DEAD_LETTER_QUEUE_TOPIC = "errors.dead.letter.queue.topic.name"

HEADER_ERRORS_EXCEPTION = "__streams.errors.exception"
HEADER_ERRORS_MESSAGE = "__streams.errors.message"
HEADER_ERRORS_STACKTRACE = "__streams.errors.stacktrace"
HEADER_ERRORS_TOPIC = "__streams.errors.topic"
HEADER_ERRORS_PARTITION = "__streams.errors.partition"
HEADER_ERRORS_OFFSET = "__streams.errors.offset"

_log = limit_rate(logging.getLogger(__name__))


class ProducerRecord(NamedTuple):
    """A record to be sent (Kafka class: ProducerRecord).

    Args:
        key: bytes, or an object if it could not be serialised.
        value: bytes, or an object if it could not be serialised.
        timestamp: in ms.
        partition: None for Kafka's choice by the key.
    """

    topic: str
    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()
    partition: int | None = None


class SerializationExceptionOrigin(Enum):
    """The half of a record that could not be serialised.

    Kafka class: ProductionExceptionHandler.SerializationExceptionOrigin.
    """

    KEY = "key"
    VALUE = "value"


class Result(Enum):
    """The decision of a handler (Kafka classes: the handlers' enums Result)."""

    RESUME = "resume"
    FAIL = "fail"
    RETRY = "retry"


@dataclass(frozen=True)
class Response:
    """The response of a handler (Kafka classes: the handlers' classes Response).

    Create one with `resume`, `fail` or `retry`.

    Args:
        dead_letter_queue_records: records to be sent with the output of the task.
    """

    result: Result
    dead_letter_queue_records: tuple[ProducerRecord, ...] = ()

    @staticmethod
    def resume(dead_letter_queue_records: Iterable[ProducerRecord] = ()) -> Response:
        """Return the response that continues without the record."""
        return Response(Result.RESUME, tuple(dead_letter_queue_records))

    @staticmethod
    def fail(dead_letter_queue_records: Iterable[ProducerRecord] = ()) -> Response:
        """Return the response that stops the application with the error."""
        return Response(Result.FAIL, tuple(dead_letter_queue_records))

    @staticmethod
    def retry() -> Response:
        """Return the response that sends again if a retry can help, and fails otherwise."""
        return Response(Result.RETRY)


@dataclass(frozen=True)
class ErrorHandlerContext:
    """The place of an error (Kafka class: ErrorHandlerContext).

    Args:
        topic: of the source record; None in punctuators.
        partition: of the source record; -1 in punctuators.
        offset: of the source record; -1 in punctuators.
        headers: of the current record.
        timestamp: of the current record, in ms.
        source_raw_key: the serialised key of the source record; None if unavailable: in punctuators, and for buffered
            records from before a commit.
        source_raw_value: the serialised value; None in the same cases.
    """

    topic: str | None
    partition: int
    offset: int
    headers: Headers
    processor_node_id: str
    task_id: str
    timestamp: int
    source_raw_key: bytes | None = None
    source_raw_value: bytes | None = None


class ExceptionHandler:
    """The base of all handlers: configuration, and records for the dead letter queue."""

    _dead_letter_queue_topic: str | None = None

    def configure(self, config: Mapping[str, Any]) -> None:
        """Configure the handler from the application's configuration, before the first record of a task."""
        self._dead_letter_queue_topic = config.get(DEAD_LETTER_QUEUE_TOPIC)

    def dead_letter_queue_records(self, context: ErrorHandlerContext, error: Exception) -> tuple[ProducerRecord, ...]:
        """Return the source record of `context` for the dead letter queue.

        `error` is in its headers. Empty if the configuration names no dead letter queue.
        """
        topic = self._dead_letter_queue_topic
        if topic is None:
            return ()
        headers = (
            *context.headers,
            *self.error_headers(error, RecordMetadata(context.topic, context.partition, context.offset)),
        )
        raw_key, raw_value = context.source_raw_key, context.source_raw_value
        return (ProducerRecord(topic, raw_key, raw_value, context.timestamp, headers),)

    @staticmethod
    def error_headers(error: Exception, source: RecordMetadata) -> Headers:
        """Return the headers that a dead letter has in addition to those of its record.

        source: the place of the source record.
        """
        return (
            (HEADER_ERRORS_EXCEPTION, _class_name(error).encode()),
            (HEADER_ERRORS_MESSAGE, str(error).encode()),
            (HEADER_ERRORS_STACKTRACE, "".join(traceback.format_exception(error)).encode()),
            (HEADER_ERRORS_TOPIC, None if source.topic is None else source.topic.encode()),
            (HEADER_ERRORS_PARTITION, str(source.partition).encode()),
            (HEADER_ERRORS_OFFSET, str(source.offset).encode()),
        )


def _class_name(error: Exception) -> str:
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}"


class DeserializationExceptionHandler(ExceptionHandler):
    """Decides about records that a source cannot deserialise (Kafka class: DeserializationExceptionHandler)."""

    @abstractmethod
    def handle_error(self, context: ErrorHandlerContext, record: ConsumerRecord, error: Exception) -> Response:
        """Return the response for `record`, which failed with `error`."""
        raise NotImplementedError(f"{type(self).__name__} must define handle_error(self, context, record, error).")


class LogAndFailExceptionHandler(DeserializationExceptionHandler):
    """Stops the application: the default (Kafka class: LogAndFailExceptionHandler)."""

    def handle_error(self, context: ErrorHandlerContext, record: ConsumerRecord, error: Exception) -> Response:
        """Log the record's place and fail."""
        _log.error("Exception caught during Deserialization, %s", _place(context))
        return Response.fail(self.dead_letter_queue_records(context, error))


class LogAndContinueExceptionHandler(DeserializationExceptionHandler):
    """Continues with the next record (Kafka class: LogAndContinueExceptionHandler)."""

    def handle_error(self, context: ErrorHandlerContext, record: ConsumerRecord, error: Exception) -> Response:
        """Log the record's place and resume."""
        _log.warning("Exception caught during Deserialization, %s", _place(context), exc_info=error)
        return Response.resume(self.dead_letter_queue_records(context, error))


class ProcessingExceptionHandler(ExceptionHandler):
    """Decides about errors in processors and punctuators (Kafka class: ProcessingExceptionHandler, KIP-1033)."""

    @abstractmethod
    def handle_error(self, context: ErrorHandlerContext, record: Record[Any, Any] | None, error: Exception) -> Response:
        """Return the response for `record`, the input of the failed node; None in a punctuator."""
        raise NotImplementedError(f"{type(self).__name__} must define handle_error(self, context, record, error).")


class LogAndFailProcessingExceptionHandler(ProcessingExceptionHandler):
    """Stops the application: the default (Kafka class: LogAndFailProcessingExceptionHandler)."""

    def handle_error(self, context: ErrorHandlerContext, record: Record[Any, Any] | None, error: Exception) -> Response:
        """Log the record's place and fail."""
        _log.error("Exception caught during message processing, %s", _place(context))
        return Response.fail(self.dead_letter_queue_records(context, error))


class LogAndContinueProcessingExceptionHandler(ProcessingExceptionHandler):
    """Continues with the next record (Kafka class: LogAndContinueProcessingExceptionHandler)."""

    def handle_error(self, context: ErrorHandlerContext, record: Record[Any, Any] | None, error: Exception) -> Response:
        """Log the record's place and resume."""
        _log.warning("Exception caught during message processing, %s", _place(context), exc_info=error)
        return Response.resume(self.dead_letter_queue_records(context, error))


class ProductionExceptionHandler(ExceptionHandler):
    """Decides about records that cannot be serialised or sent (Kafka class: ProductionExceptionHandler)."""

    @abstractmethod
    def handle_error(self, context: ErrorHandlerContext, record: ProducerRecord, error: Exception) -> Response:
        """Return the response for `record`, which the broker rejected with `error`."""
        raise NotImplementedError(f"{type(self).__name__} must define handle_error(self, context, record, error).")

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducerRecord,
        error: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        """Return the response for `record`, whose key or value (`origin`) cannot be serialised.

        The record has its key and value as objects. By default, fail without a dead letter.
        """
        return Response.fail()


class DefaultProductionExceptionHandler(ProductionExceptionHandler):
    """Stops the application: the default (Kafka class: DefaultProductionExceptionHandler)."""

    def handle_error(self, context: ErrorHandlerContext, record: ProducerRecord, error: Exception) -> Response:
        """Fail, with the record for the dead letter queue."""
        return Response.fail(self.dead_letter_queue_records(context, error))

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducerRecord,
        error: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        """Fail, with the record for the dead letter queue."""
        return Response.fail(self.dead_letter_queue_records(context, error))


def _place(context: ErrorHandlerContext) -> str:
    return (
        f"processor node: {context.processor_node_id}, taskId: {context.task_id}, source topic: {context.topic}, "
        f"source partition: {context.partition}, source offset: {context.offset}"
    )


BUILT_IN: Mapping[str, type[ExceptionHandler]] = {
    handler.__name__: handler
    for handler in (
        LogAndFailExceptionHandler,
        LogAndContinueExceptionHandler,
        LogAndFailProcessingExceptionHandler,
        LogAndContinueProcessingExceptionHandler,
        DefaultProductionExceptionHandler,
    )
}
"""The handlers by their names in the configuration, alone or with Kafka's package as prefix."""
