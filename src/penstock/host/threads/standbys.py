"""Standby copies of other instances' task state, kept up to date from their changelogs.

The restore thread updates them, and any thread reads them (Kafka classes: StandbyTask, DefaultStateUpdater). Also the
state positions that the instance reports to its group.

A store that is filled from a source topic is not followed: its copy must not be ahead of its task's committed offsets.
The restore brings it to those offsets.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from penstock.client.api import Admin, Consumer
from penstock.errors import InvalidStateStoreError, KafkaError, OffsetOutOfRangeError
from penstock.host.deployment.layout import Layout
from penstock.host.supervision.restarts import TaskTimeout
from penstock.host.threads.readable_store import CommittedEntries, ReadableStore
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.api import Base
from penstock.task.changelog_copy import ChangelogCopy, ChangelogStamp
from penstock.task.standby_task import StandbySnapshot
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

_MOST_RECORDS = 10_000
"""Most records applied at one time, so that a restore does not wait for long."""

_WAIT_SECONDS = 0.1
"""Pause between two polls after all available records have been applied."""

_RETRY_SECONDS = 1.0

Fill = Callable[
    [TaskId, ChangelogCopy, Mapping[TopicPartition, int], Mapping[TopicPartition, int]], Generator[None, None, None]
]
"""Fills an empty copy of a task in parts, given changelog begins and ends: `RemoteState.fill`."""


def no_snapshots(
    task: TaskId, copy: ChangelogCopy, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Generator[None, None, None]:
    """Leave a copy empty, to be filled from its changelogs alone."""
    yield from ()


def empty_if_outside(
    copy: ChangelogCopy,
    changelogs: Mapping[str, TopicPartition],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Clear a copy with a position outside its changelog, which was truncated or replaced.

    A store without applied records starts at the beginning of its changelog.
    """
    positions = {p: position for store, p in changelogs.items() if (position := copy.position(store))}
    if any(not begins[p] <= position <= ends[p] for p, position in positions.items()):
        copy.clear()


class Standbys:
    """The standby tasks of an instance.

    Args:
        layout: the tasks of the application.
        admin: the client of the calling thread.
        make_consumer: returns a consumer of committed records.
        open_base: returns the base of a task.
        fill: fills an empty copy before its changelogs are followed.
        updated: receives the number of records applied to a copy.
        elapsed_ms: the clock for `task.timeout.ms`.
    """

    def __init__(
        self,
        layout: Layout,
        admin: Admin,
        make_consumer: Callable[[], Consumer],
        open_base: Callable[[TaskId], Base],
        fill: Fill = no_snapshots,
        updated: Callable[[TaskId, int], None] = lambda task, records: None,
        elapsed_ms: Callable[[], int] = elapsed_milliseconds,
    ) -> None:
        self._layout = layout
        self._admin = admin
        self._make_consumer = make_consumer
        self._open_base = open_base
        self._consumer: Consumer | None = None
        self._copies: dict[TaskId, ChangelogCopy] = {}
        self._fill = fill
        self._updated = updated
        self._elapsed_ms = elapsed_ms
        self._timeout = TaskTimeout(layout.config["task.timeout.ms"])
        self._warned = ""
        self._filling: dict[TaskId, tuple[Generator[None, None, None], Mapping[TopicPartition, int]]] = {}
        self._unread: set[TaskId] = set()
        self._readers: dict[TopicPartition, tuple[TaskId, ChangelogCopy, str]] = {}
        self._positions: Mapping[TaskId, int] = {}
        self._lock = threading.RLock()  # readers wait while records are applied

    def readable(self, store_name: str) -> list[ReadableStore]:
        """Return the stores of that name of all copies, for reads by any thread.

        The copies may be updated meanwhile. Their positions in the input topics are unknown.
        """
        with self._lock:
            copies = sorted(self._copies.items())
        found = []
        for task, copy in copies:
            stores = self._layout.spec(task).stores
            base = CommittedEntries(copy.base, partial(self._reading, task, copy))
            snapshot = StandbySnapshot(task, stores, self._layout.config, base, copy.stamp.processor_metadata)
            store = snapshot.store(store_name)
            if store is not None:
                found.append(ReadableStore(task, store, {}))
        return found

    @contextmanager
    def _reading(self, task: TaskId, copy: ChangelogCopy) -> Iterator[None]:
        with self._lock:
            if self._copies.get(task) is not copy:
                raise InvalidStateStoreError(
                    f"Task {task} is no longer a standby task here: it runs, or another instance has it. Get its "
                    "stores again."
                )
            yield

    def changelog_positions(self, store_name: str) -> dict[TaskId, int]:
        """Return the next changelog offset of a store, for each copy; from any thread.

        It includes stores that are not followed.
        """
        with self._lock:
            return {
                task: copy.position(store_name)
                for task, copy in self._copies.items()
                if store_name in self._layout.changelogs(task)
            }

    def positions(self) -> Mapping[TaskId, int]:
        """Return the sum of each copy's next changelog offsets; from any thread."""
        return self._positions

    def add(self, task: TaskId) -> None:
        """Follow the changelogs of `task`; raises StreamsError if its base cannot be opened."""
        if task in self._copies:
            return
        base = self._open_base(task)
        copy = ChangelogCopy(self._layout.spec(task).stores, self._layout.changelogs(task), self._layout.config, base)
        with self._lock:
            self._copies[task] = copy
        self._unread.add(task)
        self._readers.update(
            {partition: (task, copy, store) for store, partition in self._layout.followed_changelogs(task).items()}
        )
        self._updated(task, 0)

    def take(self, task: TaskId) -> ChangelogCopy | None:
        """Remove and return the copy of `task`; None if `task` is not a standby task."""
        with self._lock:
            copy = self._copies.pop(task, None)
        if copy is None:
            return None
        if task in self._filling:
            self._filling.pop(task)[0].close()
            copy.clear()
        self._positions = {other: position for other, position in self._positions.items() if other != task}
        partitions = list(self._layout.followed_changelogs(task).values())
        for partition in partitions:
            del self._readers[partition]
        if task in self._unread:
            self._unread.remove(task)
        elif self._consumer is not None:
            try:
                self._consumer.incremental_unassign(partitions)
            except KafkaError as error:
                self._disconnect(error)
        return copy

    def remove(self, task: TaskId) -> None:
        """Stop following the changelogs of `task`, and close its copy."""
        copy = self.take(task)
        if copy is not None:
            copy.base.close()

    def advance(self) -> float | None:
        """Apply newly arrived records; return the seconds until the next call, or None without copies.

        Raises StreamsError for a record that does not belong to its store, and for requests that brokers refuse or have
        not served for `task.timeout.ms`.
        """
        if not self._copies:
            return None
        try:
            consumer = self._following()
            arrived, reached = consumer.poll(0, _MOST_RECORDS), consumer.reached_ends()
        except OffsetOutOfRangeError as error:  # the next consumer looks up the new beginning of the changelog
            self._disconnect(error)
            return _RETRY_SECONDS
        except KafkaError as error:
            if not self._timeout.allows(error, self._elapsed_ms()):
                raise
            self._disconnect(error)
            return _RETRY_SECONDS
        self._timeout.succeeded()
        self._warned = ""
        for partition, batch in arrived:
            task, copy, store = self._readers[partition]
            with self._lock:
                copy.apply(store, batch, int(batch.offsets[-1]) + 1)
            self._updated(task, len(batch))
        for partition, end in reached.items():
            if partition in self._readers:
                _, copy, store = self._readers[partition]
                copy.reached(store, max(end, copy.position(store)))
        self._positions = {
            task: sum(copy.position(store) for store in self._layout.followed_changelogs(task))
            for task, copy in self._copies.items()
        }
        return 0 if arrived or self._filling else _WAIT_SECONDS

    def close(self) -> None:
        """Close all copies; idempotent."""
        with self._lock:
            for task in list(self._copies):
                self._copies.pop(task).base.close()
        for filling, _ in self._filling.values():
            filling.close()
        self._filling.clear()
        self._readers.clear()
        self._positions = {}
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _following(self) -> Consumer:
        """Return the consumer, which follows all copies except those being filled."""
        if self._consumer is None:
            self._consumer = self._make_consumer()
            self._unread = set(self._copies)
        if new := self._unread - self._filling.keys():
            changelogs = {task: self._layout.followed_changelogs(task) for task in new}
            partitions = [partition for each in changelogs.values() for partition in each.values()]
            ids = self._admin.topic_ids({partition.topic for partition in partitions})
            begins, ends = self._admin.beginning_offsets(partitions), self._admin.end_offsets(partitions)
            for task, each in sorted(changelogs.items()):
                of_task = {partition.topic for partition in each.values()}
                self._copies[task].continue_with({topic: id for topic, id in ids.items() if topic in of_task})
                empty_if_outside(self._copies[task], each, begins, ends)
                self._filling[task] = self._fill(task, self._copies[task], begins, ends), begins
        for task in self._filled():
            copy, (_, firsts) = self._copies[task], self._filling.pop(task)
            self._unread.remove(task)
            read = self._layout.followed_changelogs(task).items()
            self._consumer.incremental_assign({p: max(firsts[p], copy.position(store)) for store, p in read})
        return self._consumer

    def _filled(self) -> Iterator[TaskId]:
        """Yield the completely filled copies, and fill at most one part.

        One part only, so that a restore does not wait for long.
        """
        for task, (filling, _) in list(self._filling.items()):
            try:
                next(filling)
            except StopIteration:
                yield task
            except BaseException:
                self._copies[task].clear()
                del self._filling[task]
                raise
            else:
                return

    def _disconnect(self, error: KafkaError) -> None:
        """Close the consumer; the next one also looks up the current beginning of each changelog."""
        if str(error) != self._warned:
            _log.warning("The standby tasks cannot read their changelogs at the moment: %s", error)
        self._warned = str(error)
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class StatePositions:
    """The state positions of tasks on this instance and its disk, and their ends (implements
    membership.ChangelogPositions).

    Args:
        layout: the tasks of the application.
        standbys: the standby copies.
        make_admin: returns a client for the thread of the group, when ends are requested.
        has_base: returns whether the disk has a base of a task; bases of other instances' tasks are deleted after a
            time.
    """

    def __init__(
        self,
        layout: Layout,
        standbys: Standbys,
        make_admin: Callable[[], Admin],
        has_base: Callable[[TaskId], bool],
    ) -> None:
        self._layout = layout
        self._standbys = standbys
        self._make_admin = make_admin
        self._has_base = has_base
        self._admin: Admin | None = None
        self._closed: dict[TaskId, int] = {}

    def take(self, task: TaskId, stamp: ChangelogStamp) -> None:
        """Record the position of a task's closed base; from any thread."""
        if task in self._layout.stateful:
            changelogs = self._layout.followed_changelogs(task).values()
            self._closed[task] = sum(stamp.offsets.get(partition, 0) for partition in changelogs)

    def positions(self) -> Mapping[TaskId, int]:
        """Return the position of the state on this instance, by task."""
        closed = {task: position for task, position in self._closed.copy().items() if self._has_base(task)}
        return {**closed, **self._standbys.positions()}

    def ends(self) -> Mapping[TaskId, int]:
        """Return the end position of each task's changelogs; raises KafkaError if brokers do not answer."""
        if self._admin is None:
            self._admin = self._make_admin()
        changelogs = {task: self._layout.followed_changelogs(task).values() for task in self._layout.stateful}
        ends = self._admin.end_offsets([partition for each in changelogs.values() for partition in each])
        return {task: sum(ends[partition] for partition in each) for task, each in changelogs.items()}

    def close(self) -> None:
        """Release the connection."""
        if self._admin is not None:
            self._admin.close()
