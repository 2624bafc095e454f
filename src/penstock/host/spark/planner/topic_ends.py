"""The ends and start positions of the topics of an application: the planner's requests to the brokers.

Brokers may be unavailable for a time, topics may be deleted, and retention may delete the next records. The inputs of
an epoch's plan go into its offset, so repeated requests may have other answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from penstock.client.api import UNKNOWN_LEADER_EPOCH, Admin, EpochPosition
from penstock.errors import (
    KafkaError,
    LogTruncationError,
    MissingInternalTopicError,
    MissingSourceTopicError,
    RetriableError,
    StreamsError,
    UnknownTopicOrPartitionError,
)
from penstock.host.deployment.offset_resets import recreated_topics_error, reset_offsets, truncation
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.failures import QueryFailedError, encode_failure
from penstock.host.spark.protocol.history_bounds import live_position
from penstock.record import TopicPartition
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

PATIENCE_MS = 120_000
"""How long (ms) brokers may be unavailable before the query fails."""

_NEW_CHECKPOINT = "Start with a new checkpoint, or with another application.id."
_LOOK_SECONDS = 0.1
_BEGINNINGS_EVERY_MS = 10_000
_IDS_EVERY_MS = 10_000


class TopicEnds:
    """Requests the ends of all source topics and global topics.

    It lives as long as the query.

    Args:
        description: of the application.
        admin: the client for the requests.
    """

    def __init__(self, description: ApplicationDescription, admin: Admin) -> None:
        self._description = description
        self._admin = admin
        self._partitions = [*description.inputs, *description.global_inputs]
        self._replaceable = {*description.pattern_topics, *description.placement.task_topics}
        self._answers = {tp for tp in description.inputs if tp.topic in description.placement.task_topics}
        self._fixed: dict[TopicPartition, int] | None = None
        self._away_since: int | None = None
        self._beginnings: dict[TopicPartition, int] = {}
        self._beginnings_at: int | None = None
        self._ids_at: int | None = None
        self._epochs: dict[TopicPartition, int] = {}
        self._compared: dict[TopicPartition, int] = {}

    @property
    def are_fixed(self) -> bool:
        """Whether the ends are fixed, because the query stops there."""
        return self._fixed is not None

    def fix(self) -> None:
        """Fix the planned or else the current ends as the last to read, but for answers of calls.

        Waits for unavailable brokers. Raises as `now`.
        """
        ends = self.now()
        while self._away_since is not None:
            time.sleep(_LOOK_SECONDS)
            ends = self.now()
        planned = self._description.topology.planned_ends
        self._fixed = {partition: min(end, planned.get(partition, end)) for partition, end in ends.items()}

    def now(self) -> dict[TopicPartition, int]:
        """Return the end of each partition; nothing while no broker answers, for a limited time.

        A deleted topic that is read only by a pattern has no ends.

        Raises:
            QueryFailedError: the brokers were unavailable for too long or refuse the request, or a topic that the
                application reads by name was deleted, or an answers topic of a query with a planned end.
        """
        if self._fixed is not None and not self._answers:
            return self._fixed
        try:
            ends = self._ask()
        except (RetriableError, UnknownTopicOrPartitionError) as error:
            now = elapsed_milliseconds()
            self._away_since = now if self._away_since is None else self._away_since
            if now - self._away_since > PATIENCE_MS:
                raise self._failed(error) from error
            return self._fixed or {}
        except KafkaError as error:
            raise self._failed(error) from error
        self._away_since = None
        self._check_answers()
        return ends if self._fixed is None else {**self._fixed, **{tp: ends[tp] for tp in self._answers & ends.keys()}}

    def _check_answers(self) -> None:
        """Check that a query with a planned end has its task topics. In others, the driver prepares them again.

        Raises QueryFailedError if one was deleted, and perhaps created again.
        """
        lost = {tp.topic for tp in self._answers.difference(self._partitions)}
        if self._fixed is None or not lost:
            return
        uses = self._description.topology.uses_of_task_topics
        named = ", ".join(f"{topic} ({uses[topic]})" for topic in sorted(lost))
        raise self._failed(
            MissingInternalTopicError(
                f"Internal topics of {self._description.application_id} were deleted while it ran: {named}. "
                "Start the application again: it creates the topics, and makes the calls again of records that wait "
                "for their answers."
            )
        )

    def _ask(self) -> dict[TopicPartition, int]:
        self._look_at_ids()
        try:
            return self._end_offsets()
        except UnknownTopicOrPartitionError:
            topics = self._admin.topics()
        gone = sorted({tp.topic for tp in self._partitions if tp.topic not in topics})
        named = [topic for topic in gone if topic not in self._replaceable]
        if named:
            raise self._failed(
                MissingSourceTopicError(
                    f"Source topics that were deleted while the application ran: {', '.join(named)}. Create them "
                    f"again and start on a new checkpoint, for example with: penstock topics create {' '.join(named)}"
                )
            )
        if gone:
            _log.warning("Topics that a pattern matched, or with answers of calls, were deleted: %s.", ", ".join(gone))
        self._partitions = [tp for tp in self._partitions if tp.partition < topics.get(tp.topic, 0)]
        return self._end_offsets()

    def _end_offsets(self) -> dict[TopicPartition, int]:
        ends = self._admin.end_positions(self._partitions, read_committed=True)
        self._epochs = {tp: end.leader_epoch for tp, end in ends.items()}
        return {tp: end.offset for tp, end in ends.items()}

    def leader_epochs(self, before: EpochOffset) -> dict[str, list[int]]:
        """Return the leader epoch of each partition, by topic.

        It is that of the request for the end, or else that of `before`.
        """
        return {
            topic: [
                self._epochs.get(tp, before.leader_epoch(tp))
                for tp in (TopicPartition(topic, partition) for partition in range(len(offsets)))
            ]
            for topic, offsets in before.positions.items()
        }

    def without_deleted(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return `positions` without partitions that are known to be deleted; nothing waits for those."""
        there = set(self._partitions)
        return {tp: position for tp, position in positions.items() if tp in there}

    def check(self, positions: Mapping[TopicPartition, EpochPosition], ends: Mapping[TopicPartition, int]) -> None:
        """Check that no partition has lost records before its position.

        Raises:
            QueryFailedError: a partition ends before its position, or has lost records before it and has grown since
                (KIP-320), which happens only after a change of leaders.
            RetriableError: no broker answers.
        """
        read = {tp: at for tp, at in positions.items() if at.offset > 0}
        changed = {tp: at for tp, at in read.items() if self._has_another_leader(tp, at.leader_epoch)}
        try:
            lost = self._admin.truncated(changed) if changed else {}
            if lost:
                self._leave_recreated_topics()  # the leader epochs of a new topic start over
        except RetriableError:
            raise
        except KafkaError as error:
            raise self._failed(error) from error
        self._compared.update({tp: self._epochs[tp] for tp in changed})
        for tp in sorted(lost.keys() & set(self._partitions)):
            text = truncation(tp, changed[tp], lost[tp])
            raise self._failed(LogTruncationError(f"{text} {_NEW_CHECKPOINT}"))
        for tp, at in positions.items():
            is_live = self._fixed is None or tp in self._answers
            if is_live and ends.get(tp, at.offset) < at.offset:
                raise self._failed(
                    StreamsError(
                        f"Topic {tp.topic}, partition {tp.partition} ends at offset {ends[tp]}, but the application "
                        f"has read up to {at.offset}: the topic was created again or truncated. {_NEW_CHECKPOINT}"
                    )
                )

    def _has_another_leader(self, partition: TopicPartition, epoch: int) -> bool:
        """Return whether `partition` has a leader epoch other than `epoch`, not compared yet.

        Both epochs must be known.
        """
        now = self._epochs.get(partition, UNKNOWN_LEADER_EPOCH)
        return UNKNOWN_LEADER_EPOCH not in (epoch, now) and now not in (epoch, self._compared.get(partition))

    def _look_at_ids(self) -> None:
        """Compare the ids of topics at intervals, even if there is nothing to read. Raises as `are_of_before`."""
        now_ms = elapsed_milliseconds()
        if self._ids_at is None or now_ms - self._ids_at >= _IDS_EVERY_MS:
            self._leave_recreated_topics()

    def are_of_before(self) -> bool:
        """Return whether the ends read before this call belong to the known topics.

        They may belong to new topics of the same names. In that case, or while no broker answers, nothing may be read
        up to them. Topics of a pattern that were created again are not read until the application is prepared again.

        Raises:
            QueryFailedError: a topic that the application reads by name was deleted and created again.
        """
        before = len(self._partitions)
        try:
            self._leave_recreated_topics()
        except RetriableError:
            return False
        except KafkaError as error:
            raise self._failed(error) from error
        return len(self._partitions) == before

    def _leave_recreated_topics(self) -> None:
        known = self._description.topic_ids
        read = {tp.topic for tp in self._description.inputs} & {tp.topic for tp in self._partitions}
        ids = self._admin.topic_ids(read & known.keys())
        self._ids_at = elapsed_milliseconds()
        recreated = {topic for topic, topic_id in ids.items() if topic_id != known[topic]}
        named = sorted(recreated - self._replaceable)
        if named:
            raise self._failed(recreated_topics_error(named))
        if recreated:
            _log.warning(
                "Topics that a pattern matched, or with answers of calls, were deleted and created again: %s.",
                ", ".join(sorted(recreated)),
            )
            self._partitions = [tp for tp in self._partitions if tp.topic not in recreated]

    def readable(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the start position of each partition.

        It is that of `positions`, or, if the records there are deleted, that of the offset reset. Rows of histories are
        never deleted before they are read. Brokers are asked at intervals; workers detect deletions in between.

        Raises:
            QueryFailedError: records are deleted, and the reset is `none`.
        """
        histories = self._description.histories
        live = {tp: at for tp, at in positions.items() if live_position(histories, tp, at) == at}
        self._look_for_beginnings([tp for tp, end in ends.items() if tp in live and live[tp] < end])
        deleted = [tp for tp, position in live.items() if position < self._beginnings.get(tp, 0) and tp in ends]
        if not deleted:
            return dict(positions)
        resets = {tp: self._description.offset_resets[tp.topic] for tp in deleted}
        try:
            found = reset_offsets(self._admin, resets, ends, now_ms)
        except KafkaError:
            return dict(positions)  # asked again with the next epoch
        except StreamsError as error:
            raise self._failed(error) from error
        for tp, offset in found.items():
            _log.warning(
                "Records of %s from offset %d on are deleted; reading continues at %d.", tp, positions[tp], offset
            )
        return {**positions, **{tp: max(positions[tp], offset) for tp, offset in found.items()}}

    def _look_for_beginnings(self, lagging: list[TopicPartition]) -> None:
        now = elapsed_milliseconds()
        if not lagging or (self._beginnings_at is not None and now - self._beginnings_at < _BEGINNINGS_EVERY_MS):
            return
        try:
            self._beginnings = self._admin.beginning_offsets(lagging)
        except KafkaError:
            return  # asked again with the next epoch
        self._beginnings_at = now

    def _failed(self, error: StreamsError) -> QueryFailedError:
        return QueryFailedError(encode_failure(error, ""), self._description.failure_key)
