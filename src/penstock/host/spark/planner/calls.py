"""The calls of one query, in the source process: it opens what makes them and hands it the committed records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from penstock.client.confluent import ConfluentBatchProducer
from penstock.errors import StreamsError
from penstock.host.calls.answer_writer import ProducedAnswers
from penstock.host.calls.runner import CallRunner
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.planner.call_reports import CallReports
from penstock.host.spark.planner.call_stores import CallStores, TaskInbox, task_inboxes
from penstock.host.spark.planner.committed_calls import CommittedCalls
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.mailbox import Mailbox
from penstock.record import TopicPartition
from penstock_broker.common.clock import elapsed_milliseconds


class PlannerCalls:
    """Makes the calls for the records of each manifest. Without calls in the topology, it does nothing.

    Args:
        description: of the application.
        checkpoint: of the application.
        mailbox: of the query, for the figures.
    """

    def __init__(self, description: ApplicationDescription, checkpoint: Checkpoint, mailbox: Mailbox) -> None:
        self._inboxes: list[TaskInbox] = task_inboxes(description)
        self._lost: Exception | None = None
        self._failed: Exception | None = None
        producer = partial(ConfluentBatchProducer, description.config)
        self._runner = CallRunner(
            [calls for spec in description.topology.subtopologies for calls in spec.answers_topics.values()],
            {inbox.node: inbox.answers.topic for inbox in self._inboxes},
            description.config,
            ProducedAnswers(description.application_id, producer, self._lose),
            self._fail,
        )
        self._reports = CallReports(mailbox, self._runner.take_measured, elapsed_milliseconds)
        self._calls = CommittedCalls(self._inboxes, CallStores(self._inboxes, checkpoint), self._runner)

    def take(self, manifest: Manifest, committed: EpochOffset, ends: Mapping[TopicPartition, int]) -> None:
        """Start the calls for records that wait in `manifest`; see `CommittedCalls.take`.

        Raises StreamsError if an answer could not be written, or a client cannot be opened.
        """
        self._runner.resume()
        if self._failed is not None:
            raise self._failed
        if self._lost is not None:
            raise StreamsError(
                f"An answer of a call could not be written to its topic ({self._lost}). Its record still waits, and is "
                "called again at the next start. Let the application write to its topics that end in -answers."
            ) from self._lost
        if self._inboxes:
            self._calls.take(manifest, committed, ends)
            self._reports.tell()

    @property
    def waiting(self) -> int:
        """The number of records that wait for answers, as of the last manifest."""
        return self._calls.waiting

    def pause(self) -> None:
        """Start no calls until the next `take`."""
        self._runner.pause()

    def close(self) -> None:
        """Cancel all calls; idempotent."""
        self._runner.close()
        self.tell_last()

    def tell_last(self) -> None:
        """Report the figures up to now, for the end of a query."""
        if self._inboxes:
            self._reports.finish()

    def _fail(self, error: Exception) -> None:
        self._failed = error

    def _lose(self, error: Exception) -> None:
        self._lost = error
