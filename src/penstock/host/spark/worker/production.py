"""What the sink does about records that brokers refuse: asks the handler of production errors, drops the record or ends
the query, and writes dead letters in the same transaction.

The record is known, and the task and sink that made it; of which source record it was made nobody knows any more here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache

from penstock.client.confluent.refusals import RefusedRecord
from penstock.errors import StreamsError
from penstock.exception_handlers import (
    ErrorHandlerContext,
    ProducerRecord,
    ProductionExceptionHandler,
    Response,
    Result,
)
from penstock.host.spark.protocol.application_description import DESCRIPTIONS_AT_HAND, ApplicationDescription
from penstock.host.spark.worker.target_topics import target_topics
from penstock.log_limits import limit_rate
from penstock.plan.subtopology import TaskId
from penstock.record import NO_METADATA, PartitionBatch, RecordBatch
from penstock.task.record_collector import RecordCollector
from penstock.task.record_sender import RecordSender

_log = limit_rate(logging.getLogger(__name__))


class ProductionFailedError(StreamsError):
    """A record was refused, and the production exception handler does not continue without it."""


class RefusedRecords:
    """Decides about the records of one write."""

    def __init__(self, description: ApplicationDescription, lanes: Sequence[int]) -> None:
        """Take the description, and the lane from which each part of the output came."""
        self._description = description
        self._lanes = lanes

    def __call__(self, refused: RefusedRecord) -> list[PartitionBatch]:
        """Return the dead letters to be written in place of a record; raises ProductionFailedError if the query is
        to end."""
        if refused.part >= len(self._lanes):
            raise ProductionFailedError(f"A dead letter cannot be written: {refused.error}") from refused.error
        task = self._description.placement.tasks[self._lanes[refused.part]]
        nodes = self._description.subtopologies[task.subtopology].sinks_of(refused.topic)
        record = ProducerRecord(
            refused.topic, refused.key, refused.value, refused.timestamp, refused.headers, refused.partition
        )
        context = ErrorHandlerContext(None, -1, -1, refused.headers, nodes, str(task), refused.timestamp)
        try:
            response = _handler(self._description).handle_error(context, record, refused.error)
            if not isinstance(response, Response):
                raise TypeError("Invalid ProductionExceptionHandler response.")
        except Exception as fatal:
            raise ProductionFailedError("Fatal user code error in production error callback") from fatal
        if response.result is not Result.RESUME:
            raise ProductionFailedError(
                f"Error encountered sending a record to topic {refused.topic} for task {task}, sink {nodes}: "
                f"{refused.error} The exception handler chose to fail, and nothing of the epoch is committed. To skip "
                "such records, set production.exception.handler."
            ) from refused.error
        _log.warning("A record for topic %s of task %s is dropped: %s", refused.topic, task, refused.error)
        return self._dead_letters(task, response)

    def _dead_letters(self, task: TaskId, response: Response) -> list[PartitionBatch]:
        sender = RecordSender(RecordCollector(), target_topics(self._description), task, lambda: NO_METADATA.offset)
        return [
            PartitionBatch(
                letter.topic,
                sender.partition_of(letter, NO_METADATA.offset),
                RecordBatch.of([(letter.key, letter.value, letter.timestamp, 0, letter.headers)]),
            )
            for letter in response.dead_letter_queue_records
        ]


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def _handler(description: ApplicationDescription) -> ProductionExceptionHandler:
    handler: ProductionExceptionHandler = description.config["production.exception.handler"]
    handler.configure(description.config)
    return handler
