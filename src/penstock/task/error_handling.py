"""The error handling of a task: handler calls, dead letter queue, and continuing or failing.

A processor's error is handled at the innermost node: its parent continues with the next record that it forwards. If the
answer is to fail, the error leaves the task as a ProcessingError, which passes through the nodes above unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from penstock.errors import ClassCastError, StreamsError
from penstock.exception_handlers import (
    DEAD_LETTER_QUEUE_TOPIC,
    DefaultProductionExceptionHandler,
    DeserializationExceptionHandler,
    ErrorHandlerContext,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    ProcessingExceptionHandler,
    ProducerRecord,
    ProductionExceptionHandler,
    Response,
    Result,
    SerializationExceptionOrigin,
)
from penstock.metrics.drop_reasons import DropReason
from penstock.notebook import value_text
from penstock.plan.user_lines import failing_line
from penstock.processor.api import Processor
from penstock.processor.columns import ColumnError
from penstock.processor.fixed_key import FixedKeyProcessor
from penstock.processor.value_transformer import ValueTransformerWithKey
from penstock.record import NO_METADATA, ConsumerRecord, FailedRecord, Record, RecordMetadata
from penstock.task.context import TaskContext
from penstock.task.record_sender import RecordSender
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))

DESERIALIZATION_FAILED = (
    "Deserialization exception handler is set to fail upon a deserialization error. If you would rather have the "
    "streaming pipeline continue after a deserialization error, please set the deserialization.exception.handler "
    "appropriately."
)


_WITH_CONTEXT = (Processor, FixedKeyProcessor, ValueTransformerWithKey)
"""The classes that have a context only after `init`."""

_LONGEST = 1_000
"""Maximum number of characters of a key or a value in an error."""


class ProcessingError(Exception):
    """An error in one node on its way out of the task (Kafka class: FailedProcessingException).

    It passes through the nodes above unchanged.

    Args:
        node: the node that raised `error`.
        error: the error.
        message: the text of the error; None for the usual text.
        record: the failed record of the node, None if unknown.
    """

    def __init__(
        self, node: str, error: Exception, message: str | None = None, record: Record[Any, Any] | None = None
    ) -> None:
        super().__init__(node, error)
        self.node = node
        self.error = error
        self.message = message
        self.record = record

    def failed_record(self, metadata: RecordMetadata) -> FailedRecord:
        """Return the failed record of the task, for its error.

        metadata: of the input record.
        """
        if isinstance(self.error, StreamsError) and self.error.failed_record is not None:
            return self.error.failed_record
        return failed_record(self.node, metadata, self.record)


def failed_record(
    node: str, metadata: RecordMetadata, record: Record[Any, Any] | ConsumerRecord | None
) -> FailedRecord:
    """Return the failed record of `node`, with short texts.

    metadata: of the input record.
    """
    place = node, metadata.topic, metadata.partition, metadata.offset
    if record is None:
        return FailedRecord(*place)
    return FailedRecord(*place, value_text(record.key, _LONGEST), value_text(record.value, _LONGEST))


def told_cause(cause: BaseException, node: str, described: str) -> str:
    """Return a description of a failure, for a note.

    It includes the line of the user's function, or otherwise the place where the node was created.

    described: the node, as described by `TaskContext.described`.
    """
    told = [f"{type(cause).__name__}: {cause}"]
    if isinstance(cause, AttributeError) and cause.name == "context" and isinstance(cause.obj, _WITH_CONTEXT):
        told.append(f"{type(cause.obj).__qualname__}.init must call super().init(context), which sets self.context.")
    if (line := failing_line(cause)) is not None:
        told.append(f"  {line}")
    elif described != node:
        told.append(f"The processor is {described}.")
    return "\n".join(told)


class ErrorHandling:
    """The handlers of one task.

    Args:
        task: the context of the task.
        sender: sends records to the dead letter queue; None if there are no dead letters.
        deserialization: the handler for unreadable records.
        processing: the handler for processor errors; None to raise every error unchanged.
        production: the handler for records that cannot be written.
    """

    def __init__(
        self,
        task: TaskContext,
        sender: RecordSender | None,
        deserialization: DeserializationExceptionHandler,
        processing: ProcessingExceptionHandler | None,
        production: ProductionExceptionHandler,
    ) -> None:
        self._task = task
        self._sender = sender
        self._deserialization = deserialization
        self._processing = processing
        self._production = production
        for handler in (deserialization, processing, production):
            if handler is not None:
                handler.configure(task.config)

    @staticmethod
    def of_task(task: TaskContext, sender: RecordSender) -> ErrorHandling:
        """Return the handlers in the configuration of `task`."""
        config = task.config
        return ErrorHandling(
            task,
            sender,
            config["deserialization.exception.handler"],
            config["processing.exception.handler"],
            config["production.exception.handler"],
        )

    @property
    def may_resume(self) -> bool:
        """Whether the task may continue after an error of a processor."""
        return type(self._processing) not in (LogAndFailProcessingExceptionHandler, type(None))

    @property
    def writes_dead_letters(self) -> bool:
        """Whether the built-in handlers write to a dead letter queue."""
        return self._task.config[DEAD_LETTER_QUEUE_TOPIC] is not None

    @property
    def ask_in_order(self) -> bool:
        """Whether a handler is user-defined, so that it must be called in record order."""
        built_in = (LogAndFailProcessingExceptionHandler, LogAndContinueProcessingExceptionHandler, type(None))
        return type(self._processing) not in built_in or type(self._production) is not DefaultProductionExceptionHandler

    @property
    def need_source_records(self) -> bool:
        """Whether a handler may need the bytes of the failed record."""
        return self.ask_in_order or self.writes_dead_letters

    def deserialization_failed(self, node: str, record: ConsumerRecord, error: Exception, part: str) -> None:
        """Handle that the source `node` cannot read `record`; returns if it is to be dropped.

        Raises StreamsError if the task is to fail, or the handler fails.

        part: the unreadable part and its serde, for the message.
        """
        context = ErrorHandlerContext(
            record.topic,
            record.partition,
            record.offset,
            record.headers,
            node,
            self._task.task_id,
            record.timestamp,
            record.key,
            record.value,
        )
        try:
            response = _checked(self._deserialization.handle_error(context, record, error), "Deserialization")
        except Exception as fatal:
            raise StreamsError("Fatal user code error in deserialization error callback") from fatal
        if self._resumes(node, DropReason.DESERIALIZATION, response):
            return
        failure = StreamsError(DESERIALIZATION_FAILED)
        failure.failed_record = failed_record(node, RecordMetadata(*record[:3]), record)
        failure.add_note(
            f"Source {self._task.described(node)} cannot read the {part} of the record at topic {record.topic}, "
            f"partition {record.partition}, offset {record.offset} ({str(error).rstrip('.')}). Name the serde that "
            "wrote it, or set deserialization.exception.handler to one that drops such records."
        )
        raise failure from error

    def processing_failed(
        self,
        node: str,
        record: Record[Any, Any] | None,
        error: Exception,
        send: Callable[[ProducerRecord], None] | None = None,
    ) -> None:
        """Handle that the processor `node` failed on `record`, or in a punctuator (None).

        Returns if the task continues without the record; raises ProcessingError if the task must fail, or the handler
        fails. `send` receives the records for the dead letter queue if they are not sent immediately.

        Raises StreamsError for a ClassCastError, without calling the handler: as in Kafka, the handler is called for
        the node above.
        """
        if isinstance(error, ClassCastError):
            raise StreamsError(
                f"Processor {self._task.described(node)} was given a key or value that the serdes of its store do not "
                f"write: {error} They are those of the table above, else the defaults: name them where that table is "
                "made, with with_key_serde and with_value_serde of Materialized, or in Grouped."
            ) from error
        if self._processing is None or isinstance(error, ColumnError):  # no record is at fault, but the program
            raise ProcessingError(node, error, record=record) from error
        try:
            response = _checked(self._processing.handle_error(self._context(node, record), record, error), "Processing")
        except Exception as fatal:
            message = "Fatal user code error in processing error callback"
            raise ProcessingError(node, fatal, message, record) from fatal
        if not self._resumes(node, DropReason.PROCESSING, response, send):
            raise ProcessingError(node, error, record=record) from error

    def serialization_failed(
        self,
        node: str,
        record: ProducerRecord,
        source: Record[Any, Any],
        error: Exception,
        origin: SerializationExceptionOrigin,
    ) -> None:
        """Handle that the sink `node` cannot write `record`, created from `source`.

        Returns if it is to be dropped. Raises StreamsError if the task is to fail, ProcessingError if the handler
        fails.
        """
        context = self._context(node, source)
        try:
            response = _checked(
                self._production.handle_serialization_error(context, record, error, origin), "Production"
            )
        except Exception as fatal:
            message = "Fatal user code error in production error callback"
            raise ProcessingError(node, fatal, message, source) from fatal
        if self._resumes(node, DropReason.SERIALIZATION, response):
            return
        failure = StreamsError(
            f"Unable to serialize record. ProducerRecord(topic=[{record.topic}], partition=[null], "
            f"timestamp=[{record.timestamp}]"
        )
        failure.failed_record = failed_record(node, self._task.metadata or NO_METADATA, source)
        failure.add_note(
            f"Sink {self._task.described(node)} cannot write the {origin.value} to topic {record.topic} "
            f"({str(error).rstrip('.')}), for the input record at topic {context.topic}, partition "
            f"{context.partition}, offset {context.offset}. Name another serde, or set "
            "production.exception.handler to one that drops such records."
        )
        raise failure from error

    def count_dead_letter(self) -> None:
        """Count a record that an operator writes to its own topic of dead letters."""
        if self._sender is not None:
            self._sender.dead_letters += 1

    def _resumes(
        self,
        node: str,
        reason: DropReason,
        response: Response,
        send: Callable[[ProducerRecord], None] | None = None,
    ) -> bool:
        """Send a response's dead letters, count the dropped record, and return whether the task continues."""
        for record in response.dead_letter_queue_records:
            if send is not None:
                send(record)
            elif self._sender is not None:
                self._sender.bury(record)
            else:
                _log.warning("Dead letter queue cannot be used with global stores: a record of %s is lost.", node)
        if response.result is not Result.RESUME:
            return False
        self._task.count_dropped(node, reason)
        return True

    def _context(self, node: str, record: Record[Any, Any] | None) -> ErrorHandlerContext:
        task = self._task
        metadata = task.metadata or NO_METADATA
        raw_key, raw_value = task.source_records.find(metadata)
        return ErrorHandlerContext(
            metadata.topic,
            metadata.partition,
            metadata.offset,
            () if record is None else record.headers,
            node,
            task.task_id,
            task.punctuation_time if record is None else record.timestamp,
            raw_key,
            raw_value,
        )


def _checked(response: Response, kind: str) -> Response:
    if not isinstance(response, Response):
        raise TypeError(f"Invalid {kind}ExceptionHandler response.")
    return response
