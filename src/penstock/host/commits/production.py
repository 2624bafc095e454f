"""The handling of records that brokers refuse (Kafka class: RecordCollectorImpl).

The handler of production errors decides whether to drop the record or fail the commit; dead letters are written with
the other output. The record, its task and its sink are known, but its source record no longer is.
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
    """A record was refused, and the production exception handler does not continue without it.

    What to do: Correct the cause that the message names, such as a record that is too large for its topic. A
    `production.exception.handler` can continue without the record, or write it to a dead letter queue.
    """


class RefusedRecords:
    """Handles the refused records of one task.

    Args:
        handler: decides about each record.
        task: the task.
        spec: the sub-topology of the task.
        node_lines: the line of the user's program that created each node, by node name.
        targets: the number of partitions of the dead letter topics; may look them up.
        undone: name of the work without a commit after a failure, for errors.
    """

    def __init__(
        self,
        handler: ProductionExceptionHandler,
        task: TaskId,
        spec: SubtopologySpec,
        node_lines: Mapping[str, str],
        targets: Mapping[str, int],
        undone: str,
    ) -> None:
        self._handler = handler
        self._task = task
        self._spec = spec
        self._node_lines = node_lines
        self._targets = targets
        self._undone = undone

    def __call__(self, refused: RefusedRecord) -> list[PartitionBatch]:
        """Return the dead letters to write in place of a record.

        Raises ProductionFailedError if the handler does not continue without the record.
        """
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
