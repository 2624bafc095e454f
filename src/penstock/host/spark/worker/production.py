"""The sink's treatment of records that brokers refuse: see `host/commits/production.py`.

A refused dead letter ends the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from penstock.client.api import RefusedRecord
from penstock.exception_handlers import ProductionExceptionHandler
from penstock.host.commits.production import ProductionFailedError, RefusedRecords
from penstock.host.spark.protocol.application_description import DESCRIPTIONS_AT_HAND, ApplicationDescription
from penstock.host.spark.worker.target_topics import target_topics
from penstock.record import PartitionBatch


class RefusedOutput:
    """Decides about the refused records of one write.

    Args:
        description: of the application.
        lanes: the lane from which each part of the output came.
    """

    def __init__(self, description: ApplicationDescription, lanes: Sequence[int]) -> None:
        self._description = description
        self._lanes = lanes

    def __call__(self, refused: RefusedRecord) -> list[PartitionBatch]:
        """Return the dead letters to write in place of a record.

        Raises ProductionFailedError if the query is to end.
        """
        if refused.part >= len(self._lanes):
            raise ProductionFailedError(f"A dead letter cannot be written: {refused.error}") from refused.error
        description = self._description
        task = description.placement.tasks[self._lanes[refused.part]]
        spec, node_lines = description.subtopologies[task.subtopology], description.topology.node_lines
        refused_by = RefusedRecords(_handler(description), task, spec, node_lines, target_topics(description), "epoch")
        return refused_by(refused)


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def _handler(description: ApplicationDescription) -> ProductionExceptionHandler:
    handler: ProductionExceptionHandler = description.config["production.exception.handler"]
    handler.configure(description.config)
    return handler
