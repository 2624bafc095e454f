"""An application on the threads host, observed through its brokers by another process.

The brokers know the members of its group, their tasks and the progress of those. Only the instances know the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.client.api import GroupDescription
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import KafkaError
from penstock.host.api import (
    GroupStatistics,
    HostListener,
    HostStatistics,
    MemberStatistics,
    Staleness,
    State,
    StateQueries,
    TaskMetadata,
    WatchedStatistics,
)
from penstock.host.commits.task_positions import ANSWER_MS, TaskPositions
from penstock.host.deployment.layout import Layout, layout_of, own_topics
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.supervision.watching import Watching
from penstock.host.threads.queries import TaskQueries, committed_by
from penstock.metrics.host_metrics import Measured
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.record import TopicPartition
from penstock_broker.common.clock import SystemClock

UNSEEN: Final = (
    "The brokers know the members of the group and what it has committed. Output, commits, metrics, errors and state "
    "are known to the instances alone: see their own pages (penstock.ui.port)."
)

_STABLE: Final = "Stable"


class _Look(NamedTuple):
    """The brokers' answers at one moment. workers: the member that has each task."""

    group: GroupDescription
    workers: Mapping[TaskId, str]
    tasks: tuple[TaskMetadata, ...]

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The committed offset of each partition."""
        return {partition: offset for task in self.tasks for partition, offset in task.committed_offsets.items()}


class GroupWatch(Watching):
    """Follows an application of other processes without joining its group (implements Host).

    Args:
        built: the topology.
        config: of the application.
    """

    def __init__(self, built: BuiltTopology, config: StreamsConfig) -> None:
        self._built = built
        self._config = config
        self._group = str(config.required("application.id"))
        self._looking = threading.Lock()  # a client is used by one thread at a time
        self._admin: ConfluentAdmin | None = None
        self._positions = TaskPositions(self._client)
        self._queries = _GroupQueries(built, config, self)
        self._first: Mapping[TopicPartition, int] = MappingProxyType({})
        self._last: _Look | None = None
        self._is_answered = False

    def start(self, listener: HostListener) -> None:
        """Look at the group for the first time.

        Raises:
            MissingSourceTopicError: a source topic does not exist.
            KafkaError: the group does not exist, or the brokers do not answer.
        """
        look = self._look()
        if not look.group.exists and not look.group.members and not self._has_committed():
            raise KafkaError(
                f"There is no group {self._group!r} at {self._config['bootstrap.servers']}: the application has not "
                "run there, or its group has expired. Start the application first."
            )
        listener.on_running()

    def look(self) -> tuple[TaskMetadata, ...]:
        """Ask the brokers, and return the progress of each task; raises StreamsError as `start`."""
        return self._look().tasks

    def statistics(self) -> HostStatistics:
        """Return the last answers of the brokers.

        The records in are offsets that the group has committed since the start. The state is that of the group, None if
        the brokers did not answer last.
        """
        look = self._last
        if look is None:
            return HostStatistics(watched=WatchedStatistics(unseen=UNSEEN))
        own = own_topics(self._built)
        members = [MemberStatistics(each.member_id, each.client_id, each.host) for each in look.group.members]
        return HostStatistics(
            records_in=sum(
                self._advance(partition, offset)
                for partition, offset in look.committed.items()
                if partition.topic not in own
            ),
            workers={str(task): worker for task, worker in look.workers.items()},
            watched=WatchedStatistics(
                state=_state_of(look.group) if self._is_answered else None,
                unseen=UNSEEN,
                advanced={
                    str(task.task_id): sum(self._advance(*each) for each in task.committed_offsets.items())
                    for task in look.tasks
                },
                group=GroupStatistics(look.group.group_type, look.group.state, members),
            ),
        )

    def measured(self) -> Measured:
        """Return the lag of each partition; it is the only measurement available from outside."""
        tasks = () if self._last is None else self._last.tasks
        return Measured({}, {}, lags={each: task.lag_of(each) for task in tasks for each in task.topic_partitions})

    def queries(self) -> StateQueries:
        """Return the queries for stores and task progress; stores cannot be read from outside."""
        return self._queries

    def summary(self) -> str:
        """Return a one-line summary."""
        return f"watched by its group at {self._config['bootstrap.servers']}"

    def close(self, timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
        """Close the clients, and return True."""
        with self._looking:
            self._positions.close()
        self._queries.close()
        return True

    # ---------------------------------------- looking

    def _client(self) -> ConfluentAdmin:
        self._admin = self._admin or ConfluentAdmin(self._config, ANSWER_MS)
        return self._admin

    def _look(self) -> _Look:
        """Ask the brokers again: the partitions and the members of the group may have changed."""
        with self._looking:
            self._is_answered = False
            topics = self._client().topics()
            layout = layout_of(self._built, self._config, topics)
            groups = {  # before its first start, the application has no internal topics
                task: [partition for partition in group if partition.topic in topics]
                for task, group in layout.groups.items()
            }
            tasks = self._positions.metadata(groups, committed_by(self._group))
            group = self._client().describe_group(self._group)
            look = _Look(group, _workers(layout, group), tasks)
            self._first = {**look.committed, **self._first}  # before others see the look
            self._last = look
            self._is_answered = True
        return look

    def _has_committed(self) -> bool:
        with self._looking:
            return bool(committed_by(self._group)(self._client(), list(self._first)))

    def _advance(self, partition: TopicPartition, offset: int) -> int:
        """Return the committed progress of a partition since the first look; 0 after a reset."""
        return max(0, offset - self._first[partition])


class _GroupQueries(TaskQueries):
    """Knows the stores of the topology, without their state, and the progress of all tasks."""

    def __init__(self, built: BuiltTopology, config: StreamsConfig, watch: GroupWatch) -> None:
        super().__init__(built, config, SystemClock())
        self._watch = watch

    def task_metadata(self) -> tuple[TaskMetadata, ...]:
        """Return the progress of each task of the group.

        Raises StreamsError if the brokers do not answer.
        """
        return self._watch.look()

    def staleness(self) -> Staleness:
        """Return an unknown staleness: brokers do not report the times of a group's commits."""
        return Staleness(0, 0, None)


def _state_of(group: GroupDescription) -> State:
    """Return the state of an application according to its group."""
    if not group.members:
        return State.NOT_RUNNING
    return State.RUNNING if group.state == _STABLE else State.REBALANCING


def _workers(layout: Layout, group: GroupDescription) -> dict[TaskId, str]:
    """Return the member that has each task, by its client and its host."""
    return {
        layout.readers[partition]: f"{member.client_id} {member.host}"
        for member in group.members
        for partition in member.partitions
        if partition in layout.readers
    }
