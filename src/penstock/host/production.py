"""What hosts do about records that brokers refuse: ask the handler of production errors, drop the record or end the
commit, and write dead letters with the other output (Kafka class: RecordCollectorImpl).

The record is known, and the task and sink that made it; of which source record it was made nobody knows any more here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from penstock.client.api import RefusedRecord
from penstock.errors import StreamsError
from penstock.exception_handlers import (
    ErrorHandlerContext,
    ProducerRecord,
    ProductionExceptionHandler,
    Response,
    Result,
)
from penstock.log_limits import limit_rate
from penstock.plan.subtopology import TaskId
from penstock.record import NO_METADATA, PartitionBatch, RecordBatch
from penstock.task.record_collector import RecordCollector
from penstock.task.record_sender import RecordSender

_log = limit_rate(logging.getLogger(__name__))


class ProductionFailedError(StreamsError):
    """A record was refused, and the production exception handler does not continue without it."""


class RefusedRecords:
    """Decides about the records of one task."""

    def __init__(
        self,
        handler: ProductionExceptionHandler,
        task: TaskId,
        sinks_of: Callable[[str], str],
        targets: Mapping[str, int],
        undone: str,
    ) -> None:
        """Ask `handler`. sinks_of: returns the names of the sinks that write to a topic. targets: the partitions of the
        topics of dead letters; may look them up. undone: of what nothing is committed after a failure."""
        self._handler = handler
        self._task = task
        self._sinks_of = sinks_of
        self._targets = targets
        self._undone = undone

    def __call__(self, refused: RefusedRecord) -> list[PartitionBatch]:
        """Return the dead letters to be written in place of a record; raises ProductionFailedError if the handler does
        not continue without it."""
        nodes, task = self._sinks_of(refused.topic), self._task
        record = ProducerRecord(
            refused.topic, refused.key, refused.value, refused.timestamp, refused.headers, refused.partition
        )
        context = ErrorHandlerContext(None, -1, -1, refused.headers, nodes, str(task), refused.timestamp)
        try:
            response = self._handler.handle_error(context, record, refused.error)
            if not isinstance(response, Response):
                raise TypeError("Invalid ProductionExceptionHandler response.")
        except Exception as fatal:
            raise ProductionFailedError("Fatal user code error in production error callback") from fatal
        if response.result is not Result.RESUME:
            raise ProductionFailedError(
                f"Error encountered sending a record to topic {refused.topic} for task {task}, sink {nodes}: "
                f"{refused.error} The exception handler chose to fail, and nothing of the {self._undone} is committed. "
                "To skip such records, set production.exception.handler."
            ) from refused.error
        _log.warning("A record for topic %s of task %s is dropped: %s", refused.topic, task, refused.error)
        return self._dead_letters(response)

    def _dead_letters(self, response: Response) -> list[PartitionBatch]:
        sender = RecordSender(RecordCollector(), self._targets, self._task, lambda: NO_METADATA.offset)
        return [
            PartitionBatch(
                letter.topic,
                sender.partition_of(letter, NO_METADATA.offset),
                RecordBatch.of([(letter.key, letter.value, letter.timestamp, 0, letter.headers)]),
            )
            for letter in response.dead_letter_queue_records
        ]
