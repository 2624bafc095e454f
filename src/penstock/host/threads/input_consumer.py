"""The input of an instance: its consumer's partitions, with their records and ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.client.api import Consumer, OffsetAndMetadata
from penstock.errors import OffsetOutOfRangeError
from penstock.host.threads import vocabulary as v
from penstock.host.threads.figures import InstanceFigures
from penstock.host.threads.instance import Instance
from penstock.host.threads.membership import Post
from penstock.host.threads.task_manager import Room
from penstock.record import TopicPartition
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)


class InputConsumer:
    """Polls the consumer, and turns records and ends into events.

    Args:
        instance: the core, which computes its lags.
        consumer: the consumer of the polling thread.
        figures: counters and timings.
        post: receives events.
        awaitable: partitions of tasks with several inputs; the core needs their ends.
        aligned: other partitions with ends needed by the core.
    """

    def __init__(
        self,
        instance: Instance,
        consumer: Consumer,
        figures: InstanceFigures,
        post: Post,
        awaitable: frozenset[TopicPartition],
        aligned: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        self._instance = instance
        self._consumer = consumer
        self._figures = figures
        self._post = post
        self._awaitable = awaitable
        self._with_ends = awaitable | aligned
        self._positions: dict[TopicPartition, int] = {}
        """The first offset read of each partition."""
        self._next: dict[TopicPartition, int] = {}
        """The next offset after the last arrived record of each partition."""
        self._ends: dict[TopicPartition, int] = {}
        self.polled_at_ms = 0
        """The end of the last poll (ms of `elapsed_milliseconds`)."""

    @property
    def is_empty(self) -> bool:
        """Whether no partition is read."""
        return not self._positions

    def poll(self, timeout_ms: int, room: Room) -> bool:
        """Poll for records and post them; return whether there is news for the core."""
        try:
            self._figures.poll_began()
            arrived = self._consumer.poll(timeout_ms, *room)
            self.polled_at_ms = elapsed_milliseconds()
            self._figures.poll_ended(sum(len(batch) for _, batch in arrived))
        except OffsetOutOfRangeError as error:
            _log.warning("The offset reset of the source decides where reading continues: %s", error)
            self._post(v.Failed(error) if error.partition is None else v.OutOfRange(error.partition, error))
            return True
        except Exception as error:
            self._post(v.Failed(error))
            return True
        self._look_at_ends()
        for partition, batch in arrived:
            self._next[partition] = int(batch.offsets[-1]) + 1
            self._post(v.Arrived(partition, batch))
        if reached := self._new_ends():
            self._post(v.EndsReached(reached))
        if self._figures.wants_lag():
            self.look_at_lags()
        return bool(arrived or reached)

    def look_at_lags(self) -> None:
        """Measure the number of records that the instance has not taken yet."""
        outside = [p for p in self._positions if not self._figures.counters.is_internal(p.topic)]
        self._figures.lags(self._instance.lags(self._consumer.known_ends(outside)), self._instance.waiting())

    def _new_ends(self) -> dict[TopicPartition, int]:
        """Return newly reached ends. An end directly after the last record is left out: a consumer that keeps up with
        its input reaches the end after each record. But tasks that wait for partitions check again at each end, so all
        ends of these partitions are returned."""
        reached = self._consumer.reached_ends()
        return {p: end for p, end in reached.items() if p in self._awaitable or end > self._next.get(p, -1)}

    def _look_at_ends(self) -> None:
        wanted = self._with_ends & self._positions.keys()
        if wanted:
            ends = self._consumer.known_ends(wanted)
            if ends != self._ends:
                self._ends = ends
                self._post(v.EndsKnown(ends))

    def do(self, action: v.ReadAction) -> None:
        """Change the set of partitions read; an error becomes an event."""
        try:
            match action:
                case v.Follow(positions):
                    self._positions.update(positions)
                    self._consumer.incremental_assign(positions)
                case v.Unfollow(partitions):
                    for partition in partitions:
                        self._positions.pop(partition, None)
                        self._next.pop(partition, None)
                    self._consumer.incremental_unassign(partitions)
                case v.PauseReading(partitions):
                    self._consumer.pause(partitions)
                case v.ResumeReading(partitions):
                    self._consumer.resume(partitions)
        except Exception as error:
            self._post(v.Failed(error))

    def with_epochs(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return `offsets` with the leader epochs of the records before them. A later epoch, of a record that has
        arrived but is not processed yet, detects the same truncations."""
        epochs = self._consumer.leader_epochs()
        return {p: each._replace(leader_epoch=epochs.get(p, each.leader_epoch)) for p, each in offsets.items()}

    def close(self) -> None:
        """Release the consumer."""
        self._consumer.close()
