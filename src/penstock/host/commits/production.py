"""What hosts do about records that brokers refuse: ask the handler of production errors, drop the record or end the
commit, and write dead letters with the other output (Kafka class: RecordCollectorImpl).

The record is known, and the task and sink that made it; of which source record it was made nobody knows any more here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.client.api import RefusedRecord
from penstock.errors import StreamsError
from penstock.exception_handlers import (
    ErrorHandlerContext,
    ProducerRecord,
    ProductionExceptionHandler,
    Response,
    Result,
)
from penstock.plan.subtopology import SubtopologySpec, TaskId
from penstock.plan.user_lines import made_at
from penstock.record import NO_METADATA, PartitionBatch, RecordBatch
from penstock.task.record_collector import RecordCollector
from penstock.task.record_sender import RecordSender
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))


class ProductionFailedError(StreamsError):
    """A record was refused, and the production exception handler does not continue without it."""


class RefusedRecords:
    """Decides about the records of one task."""

    def __init__(
        self,
        handler: ProductionExceptionHandler,
        task: TaskId,
        spec: SubtopologySpec,
        node_lines: Mapping[str, str],
        targets: Mapping[str, int],
        undone: str,
    ) -> None:
        """Ask `handler`. spec: the sub-topology of the task. node_lines: where nodes were made. targets: the partitions
        of the topics of dead letters; may look them up. undone: of what nothing is committed after a failure."""
        self._handler = handler
        self._task = task
        self._spec = spec
        self._node_lines = node_lines
        self._targets = targets
        self._undone = undone

    def __call__(self, refused: RefusedRecord) -> list[PartitionBatch]:
        """Return the dead letters to be written in place of a record; raises ProductionFailedError if the handler does
        not continue without it."""
        nodes, task = self._spec.sinks_of(refused.topic), self._task
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
            described = self._spec.sinks_of(refused.topic, lambda node: f"{node}{made_at(self._node_lines.get(node))}")
            raise ProductionFailedError(
                f"Error encountered sending a record to topic {refused.topic} for task {task}, sink {described}: "
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
