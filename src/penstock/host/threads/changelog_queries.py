"""Reads the state of an application, running or not, from its changelog topics.

A store is restored on first read, into a temporary directory on this machine, up to the current end of its changelog.
Global stores and stores without a changelog exist only in the processes that run the application.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from penstock.client.api import Admin, Fetcher
from penstock.client.confluent import ConfluentAdmin, ConfluentConsumer, ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.errors import StateStoreNotAvailableError
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.threads.commit_times import InstanceCommit
from penstock.host.threads.queries import RunningTasks, TaskQueries
from penstock.host.threads.readable_store import ReadableStore
from penstock.host.threads.standbys import Standbys
from penstock.host.threads.visibility import Visibility
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.record import TopicPartition
from penstock.state.lmdb import LmdbBase
from penstock.task.changelog_copy import ChangelogCopy
from penstock.task.standby_task import StandbySnapshot
from penstock.task.taps import TappedRecord
from penstock_broker.common.clock import SystemClock


class ChangelogQueries(TaskQueries):
    """Answers queries from changelog topics; see the module. The constructor connects to the brokers.

    Args:
        built: the topology of the application.
        config: its configuration.

    Raises:
        KafkaError: the brokers do not answer.
        StreamsError: a source topic is missing.
    """

    def __init__(self, built: BuiltTopology, config: StreamsConfig) -> None:
        super().__init__(built, config, SystemClock())
        with ExitStack() as opened:
            admin, fetcher = ConfluentAdmin(config), ConfluentFetcher(config)
            opened.callback(admin.close)
            opened.callback(fetcher.close)
            directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-query-")))
            layout = layout_of(built, config, admin.topics())
            tasks = _RestoredTasks(layout, admin, fetcher, directory)
            opened.callback(tasks.close)
            standbys = Standbys(layout, admin, lambda: ConfluentConsumer(config, read_committed=True), tasks.open_base)
            self._opened = opened.pop_all()
        self.begin(RunningTasks(layout, tasks, standbys, lambda: True, lambda: InstanceCommit(0, 0), tuple))

    def close(self) -> None:
        """Stop answering, and delete the restored stores."""
        super().close()
        self._opened.close()


class _RestoredTasks:
    """The tasks of an application, with stores restored on first read (implements OpenTasks)."""

    def __init__(self, layout: Layout, admin: Admin, fetcher: Fetcher, directory: Path) -> None:
        self._layout = layout
        self._admin = admin
        self._fetcher = fetcher
        self._directory = directory
        self._bases: list[LmdbBase] = []
        self._stores: dict[str, list[ReadableStore]] = {}

    def open_tasks(self) -> list[TaskId]:
        """Return all tasks."""
        return sorted(self._layout.groups)

    def readable(self, store_name: str, visible: Visibility) -> list[ReadableStore]:
        """Return the stores of that name of all tasks; the first call restores them."""
        if store_name not in self._stores:
            self._stores[store_name] = list(self._restored(store_name))
        return self._stores[store_name]

    def entries(self, store_name: str) -> int | None:
        """Return None: the number is unknown before the store is read."""
        return None

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return an empty list: no task runs here."""
        return []

    def untap(self, node: str) -> None:
        """Do nothing: no task runs here."""

    def open_base(self, task: TaskId) -> LmdbBase:
        """Return an empty base; `close` closes it."""
        base = LmdbBase(f"{self._directory}/{len(self._bases)}")
        self._bases.append(base)
        return base

    def close(self) -> None:
        """Close the bases."""
        for base in self._bases:
            base.close()

    def _restored(self, store: str) -> Iterator[ReadableStore]:
        places = {task: each for task in self.open_tasks() if (each := self._layout.changelogs(task).get(store))}
        topics = self._admin.topics()
        if missing := {each.topic for each in places.values()} - topics.keys():
            raise StateStoreNotAvailableError(
                f"Store {store} has no state yet: there is no changelog topic {', '.join(missing)}. Has the application"
                " run, with this application.id and this name of the store?"
            )
        if not places:
            raise StateStoreNotAvailableError(
                f"Store {store} has no changelog topic: only the processes that run the application can read it, by "
                "KafkaStreams.store, query and table."
            )
        ends, begins = self._ends(places), self._admin.beginning_offsets(list(places.values()))
        for task, partition in places.items():
            stores = {store: self._layout.spec(task).stores[store]}
            copy = ChangelogCopy(stores, {store: partition}, self._layout.config, base := self.open_base(task))
            if begins[partition] < ends[partition]:
                for batch in self._fetcher.fetch(partition, begins[partition], ends[partition], read_committed=True):
                    copy.apply(store, batch, int(batch.offsets[-1]) + 1)
            metadata = copy.stamp.processor_metadata
            snapshot = StandbySnapshot(task, stores, self._layout.config, base.snapshot(), metadata)
            restored = snapshot.store(store)
            assert restored is not None
            yield ReadableStore(task, restored, {})

    def _ends(self, places: dict[TaskId, TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each changelog. For a source topic used as a changelog, it is the committed offset of the
        task."""
        ends = dict(self._admin.end_offsets(list(places.values()), read_committed=True))
        read = [partition for task, partition in places.items() if partition in self._layout.groups[task]]
        if read:
            group = str(self._layout.config["application.id"])
            committed = self._admin.committed_offsets(group, read, stable=False)
            ends.update({each: committed[each].offset if each in committed else 0 for each in read})
        return ends
