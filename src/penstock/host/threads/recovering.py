"""Recovers a stopped application whose internal topics were deleted.

It writes the changelogs again from the state on this machine, or accepts the existing topics.

The topics that an application has used are recorded in the metadata of its committed offsets (`lost_topics`). So a
start is refused until the last step is done for every task: a commit of the same offsets with the ids of the new
topics. Each step can be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.client.api import OffsetAndMetadata
from penstock.client.confluent import ConfluentFetcher, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.commits.committing import PartitionMetadata, checkpoint_of, commit_of
from penstock.host.deployment.internal_topics import make_internal_topics
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.deployment.lost_topics import LostTopic, lost_topics, recorded_topics, topic_entries, used_topics
from penstock.host.storage.task_state import TaskState
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.handing_over import HandingOver
from penstock.host.threads.takeover import members_in_the_way
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology, built_topology
from penstock.record import TopicPartition
from penstock.state.api import Base
from penstock.task.changelog_copy import NO_COMMIT, ChangelogStamp, layouts_of

_RESET = "start over (penstock reset FILE), or go on without it (penstock recover FILE --as-they-are)."


@dataclass(frozen=True)
class Recovery:
    """The result of a recovery.

    Args:
        application_id: of the application.
        lost: the topics lost before.
        tasks: the recovered tasks.
        records: the number of records written to changelogs.
        left: the reason why a task still lacks topics, by task.
    """

    application_id: str
    lost: tuple[LostTopic, ...] = ()
    tasks: tuple[TaskId, ...] = ()
    records: int = 0
    left: Mapping[TaskId, str] = field(default_factory=dict)


def plan_recovery(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> Recovery:
    """Return the lost internal topics of an application, without changes.

    Raises KafkaError if the brokers do not answer.
    """
    with ExitStack() as opened:
        found = _Application(topology, config, opened)
        return Recovery(found.name, tuple(found.lost))


def recover_from_state(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> Recovery:
    """Write deleted changelogs again, from the state of the last commit on this machine.

    An application that ran on several machines needs this on each of them: tasks with state elsewhere are skipped.

    Args:
        topology: of the application.
        config: its configuration.

    Raises:
        LockError: an instance runs on this machine.
        StreamsError: the group has members, a repartition topic was deleted, or no state here is that of the last
            commit.
        KafkaError: the brokers do not answer or do not allow it.
    """
    with ExitStack() as opened:
        found = _Application(topology, config, opened)
        found.take()
        return found.write_from_state(opened)


def accept_topics(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> Recovery:
    """Accept the existing topics: missing internal topics are created empty, recreated ones are used unchanged.

    Data that only the deleted topics had is lost. Arguments and errors as in `recover_from_state`.
    """
    with ExitStack() as opened:
        found = _Application(topology, config, opened)
        found.take()
        return found.accept()


class _Application:
    """A stopped application and its topics.

    Args:
        topology: of the application.
        config: its configuration.
        opened: closes the clients and releases the state directory.
    """

    def __init__(self, topology: Topology, config: StreamsConfig | Mapping[str, Any], opened: ExitStack) -> None:
        checked = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self.name = str(checked.required("application.id"))
        built = built_topology(topology, self.name)
        self._config = checked.overridden(built.config_overrides)
        self._opened = opened
        self._directory = StateDirectory(self._config)
        self._admin = GroupAdmin(self._config)
        opened.callback(self._admin.close)
        self._topics = self._admin.topics()
        self._layout: Layout = layout_of(built, self._config, self._topics)
        self._committed = self._admin.committed_offsets(self.name, sorted(self._layout.readers))
        used = {topic for task in self._layout.groups for topic in self._used_by(task)}
        self._used = frozenset(recorded_topics(used, self._committed))
        ids = self._admin.topic_ids(self._used & self._topics.keys())
        self.lost = lost_topics(self._layout, self._topics, ids, self._committed)

    def take(self) -> None:
        """Ensure that no instance runs."""
        self._directory.acquire()
        self._opened.callback(self._directory.release)
        self._opened.callback(self._directory.seal)
        for why in members_in_the_way(self._admin.describe_group(self.name)):
            raise StreamsError(why)

    def accept(self) -> Recovery:
        """Accept the topics unchanged."""
        make_internal_topics(self._layout, self._admin, self._topics)
        tasks = tuple(sorted(self._layout.groups))
        self._commit(tasks, self._used)
        return Recovery(self.name, tuple(self.lost), tasks)

    def write_from_state(self, opened: ExitStack) -> Recovery:
        """Write lost changelogs from the state of this machine."""
        lost = frozenset(each.name for each in self.lost)
        if repartition := sorted(each.name for each in self.lost if each.store is None):
            raise StreamsError(
                f"The repartition topics {', '.join(repartition)} of {self.name} were deleted, and no state has the "
                f"records that waited in them: {_RESET}"
            )
        wanted = [task for task in sorted(self._layout.stateful) if lost & self._recorded(task)]
        left = {task: why for task in wanted if (why := self._unfit_state(task)) is not None}
        if wanted and len(left) == len(wanted):
            text = "; ".join(f"task {task}: {why}" for task, why in left.items())
            raise StreamsError(
                f"The changelogs of {self.name} cannot be written from the state on this machine ({text}). Run this on "
                f"the machines where the tasks ran last, {_RESET}"
            )
        fetcher, producer = ConfluentFetcher(self._config), ConfluentProducer(self._config)
        opened.callback(fetcher.close)
        opened.callback(producer.close)
        make_internal_topics(self._layout, self._admin, self._topics)
        handing_over = HandingOver(self._layout, self._admin, fetcher, producer)
        here, records = [task for task in wanted if task not in left], 0
        for task in here:
            state = TaskState(checkpoint_of(self._offsets(task), {}, {}), partial(self._base, task))
            records += handing_over.write_changelogs(task, state)
            self._commit([task], lost)
        return Recovery(self.name, tuple(self.lost), tuple(here), records, left)

    def _used_by(self, task: TaskId) -> frozenset[str]:
        return used_topics(self._layout.topology, self._layout.spec(task))

    def _recorded(self, task: TaskId) -> frozenset[str]:
        """Return the recorded changelogs of `task`."""
        return frozenset(recorded_topics(self._layout.written_changelogs(task).values(), self._offsets(task)))

    def _unfit_state(self, task: TaskId) -> str | None:
        """Return the reason why the local state cannot replace the changelogs of `task`, or None."""
        if not self._directory.has_base(task):
            return "its state is not here"
        with self._base(task) as base:
            data = base.stamp()
        stamp = ChangelogStamp() if data is None else ChangelogStamp.decode(data)
        known, wanted_layouts = stamp.inputs, layouts_of(self._layout.spec(task).stores, self._config)
        for store, layout in wanted_layouts.items():
            if store in stamp.layouts and stamp.layouts[store] != layout:
                return (
                    f"its store {store} here has the layout {stamp.layouts[store]!r}, and the program reads "
                    f"{layout!r}: use the program and the dsl.store.format that wrote it"
                )
        wanted = {partition: each.offset for partition, each in self._offsets(task).items()}
        commit = commit_of(self._offsets(task))
        if {partition: known.get(partition) for partition in wanted} == wanted:
            if commit in (NO_COMMIT, stamp.commit):
                return None
            return (
                f"its state here is of commit {stamp.commit or 'unknown'} of the task, and the last one at the same "
                f"offsets is {commit}: a punctuation has changed the state since, or a crash came before it was written"
            )
        if not known:
            return "its state here is that of a standby task, or was not closed after a crash"
        partition = next(each for each in sorted(wanted) if known.get(each) != wanted[each])
        here, committed = known.get(partition, "none"), wanted[partition]
        return f"its state here is of offset {here} of {partition}, and the group has committed {committed}"

    @contextmanager
    def _base(self, task: TaskId) -> Iterator[Base]:
        base = self._directory.open_base(task)
        try:
            yield base
        finally:
            base.close()

    def _offsets(self, task: TaskId) -> dict[TopicPartition, OffsetAndMetadata]:
        group = self._layout.read_by(task)
        return {partition: self._committed[partition] for partition in group if partition in self._committed}

    def _commit(self, tasks: Collection[TaskId], topics: frozenset[str]) -> None:
        """Commit the same offsets of `tasks` again, with the current ids of `topics`."""
        ids = self._admin.topic_ids(topics)
        offsets = {}
        for task in tasks:
            known = self._offsets(task)
            entries = topic_entries(ids, recorded_topics(self._used_by(task) & topics, known))
            for partition, each in known.items():
                metadata = PartitionMetadata.decode(each.metadata)
                if metadata.processor_metadata:
                    changed = metadata._replace(processor_metadata={**metadata.processor_metadata, **entries})
                    offsets[partition] = each._replace(metadata=changed.encode())
        self._admin.commit_offsets(self.name, offsets)
