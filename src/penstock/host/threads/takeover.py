"""Inspects the takeover of an application from another program, such as Kafka Streams in Java.

It reports the offsets and changelogs to take over, and the obstacles. The takeover itself is a normal start: names,
offsets and bytes are the same.

Only `remove_dead_members` changes anything. Equal behaviour of the operators and serdes of both programs cannot be
checked here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from penstock.client.api import Admin, Fetcher, GroupDescription, MemberDescription, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import committed_offsets
from penstock.config import StreamsConfig
from penstock.errors import ProcessorStateError, StreamsError, UnstableOffsetCommitError, counted
from penstock.host.commits.committing import PartitionMetadata, check_has_state
from penstock.host.deployment.internal_topics import internal_topics, wrong_partitions
from penstock.host.deployment.layout import Layout, layout_of, own_topics
from penstock.host.deployment.topics import source_topics
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.plan_check import moved_partitions
from penstock.plan.subtopology import BuiltTopology
from penstock.record import NO_TIMESTAMP, RecordBatch, TopicPartition
from penstock.state.api import StoreBuilder
from penstock.state.build import store_serde
from penstock.state.changelog_format import RecordBufferFormat
from penstock.state.layouts import SESSION_SUFFIX_SIZE, WINDOW_SUFFIX_SIZE
from penstock.state.memory import MemoryBase
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    LruMapBytesStoreSupplier,
    SessionBytesStoreSupplier,
    TimeOrderedKeyValueBytesStoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock.task.changelog_copy import ChangelogCopy

_INTERNAL: Final = ("-changelog", "-repartition")

_TRIED_RECORDS: Final = 100
"""Number of last records in each changelog partition that are checked against its store."""


WATCH_SECONDS: Final = 10.0
"""Time for removed members to come back: three times the default of heartbeat.interval.ms."""
_PAUSE_SECONDS: Final = 0.2


class InputOffset(NamedTuple):
    """An input partition and the position of an instance in it.

    Args:
        partition: the partition.
        committed: the committed offset, None if absent.
        end: the end offset of the partition.
        partition_time: ms, NO_TIMESTAMP if unknown.
    """

    partition: TopicPartition
    committed: int | None
    end: int
    partition_time: int


class RestoredStore(NamedTuple):
    """A store to restore. records: the number of offsets in its changelog, which is the most records that it has."""

    name: str
    changelog: str
    records: int


@dataclass(frozen=True)
class Takeover:
    """The result of the inspection.

    Args:
        group: its current description.
        inputs: the partitions of the topics that tasks read.
        stores: the stores with a changelog.
        obstacles: reasons why an instance would not start, or not continue from the last commit of the other
            application.
        warnings: facts for a person to check.
    """

    group: GroupDescription
    inputs: tuple[InputOffset, ...] = ()
    stores: tuple[RestoredStore, ...] = ()
    obstacles: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def plan_takeover(built: BuiltTopology, config: StreamsConfig) -> Takeover:
    """Return the result of a takeover by this topology and configuration now.

    Raises ConfigError if a key is wrong, KafkaError if brokers do not answer.
    """
    group = str(config.required("application.id"))
    with ExitStack() as opened:
        admin, fetcher = ConfluentAdmin(config), ConfluentFetcher(config)
        opened.callback(admin.close)
        opened.callback(fetcher.close)
        cluster = opened.enter_context(Cluster(config))
        found = Takeover(admin.describe_group(group))
        found = replace(found, obstacles=tuple(members_in_the_way(found.group)))
        topics = admin.topics()
        try:
            layout = layout_of(built, config, topics)
        except StreamsError as error:
            return replace(found, obstacles=(*found.obstacles, str(error)))
        try:
            committed = committed_offsets(cluster, group, [p for p in layout.readers if p.topic in topics])
        except UnstableOffsetCommitError:
            waiting = f"A transaction of the group {group} is open: wait for it, or see `penstock transactions list`."
            return replace(found, obstacles=(*found.obstacles, waiting))
        others = _other_topics(admin, layout, topics)
        return _Inspection(layout, topics, admin, fetcher, committed).completed(found, others)


def remove_dead_members(config: StreamsConfig, watch_s: float = WATCH_SECONDS) -> tuple[MemberDescription, ...]:
    """Remove the members of the group of an application that has ended, and return them.

    The caller asserts that the application has ended: brokers do not report the time of a member's last heartbeat. A
    running member learns of its removal at its next heartbeat and joins again, which is checked here. A member that is
    stuck for longer than `watch_s` is not found; brokers accept no offsets from it, nor transactions with offsets.

    Args:
        config: with the application.id and brokers.
        watch_s: time for running members to come back (s).

    Raises:
        StreamsError: a member came back, or the group is not a classic one.
        KafkaError: brokers do not answer, or refuse.
    """
    group = str(config.required("application.id"))
    admin = GroupAdmin(config)
    try:
        found = admin.describe_group(group)
        if not found.members:
            return ()
        if found.group_type.lower() != "classic":
            raise StreamsError(
                f"The group {group} is of the type {found.group_type.lower()}, and members can be removed from classic "
                "groups only. Wait until the sessions of its members have timed out."
            )
        admin.remove_members(group, [member.member_id for member in found.members], "penstock takeover --force")
        deadline = time.monotonic() + watch_s
        while True:
            if back := admin.describe_group(group).members:
                raise StreamsError(
                    f"{counted(len(back), 'member')} of the group {group} ({clients_of(back)}) joined again after "
                    "being removed: the application still runs. Stop all of its instances first."
                )
            if time.monotonic() >= deadline:
                return found.members
            time.sleep(_PAUSE_SECONDS)
    finally:
        admin.close()


def members_in_the_way(group: GroupDescription) -> Iterator[str]:
    """Yield the reasons why other clients cannot commit offsets of `group` now."""
    if group.members:
        yield (
            f"The group {group.group_id} has {counted(len(group.members), 'member')}: {clients_of(group.members)}. "
            "Stop the application that they are of. A member that did not leave stays in the group until its "
            "session.timeout.ms has passed, or until `penstock takeover --force` removes it."
        )


def clients_of(members: Iterable[MemberDescription]) -> str:
    """Return the clients that are members, with their hosts."""
    return ", ".join(sorted({f"{member.client_id} at {member.host}" for member in members}))


def unfit_topics(layout: Layout, topics: Mapping[str, int], admin: Admin, fetcher: Fetcher) -> Iterator[str]:
    """Yield the mismatches between existing internal topics and the tasks and stores of `layout`.

    Args:
        layout: the tasks of the application.
        topics: the topics of the brokers, with their partition counts.
        admin: a client.
        fetcher: reads the changelogs.
    """
    wrong = list(wrong_partitions(layout, topics))
    yield from wrong or _Inspection(layout, topics, admin, fetcher, {}).unfit_changelogs()


@dataclass(frozen=True)
class StateChanges:
    """The effects of a start with another topology on the state in the brokers.

    Args:
        kept: the names of the stores that keep their state.
        new: the names of the new stores.
        differences: of the topics, one line each.
        refused: the reasons why it cannot start.
    """

    kept: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return one line for each change; empty without changes."""
        if self.refused:
            return [f"REFUSED: {reason}" for reason in self.refused]
        if not self.new and not self.differences:
            return []
        kept = [f"store {store} keeps its state" for store in self.kept]
        return [*kept, *(f"store {store} is new and starts empty" for store in self.new), *self.differences]


def topic_changes(built: BuiltTopology, config: StreamsConfig) -> list[str]:
    """Return the effects of a start with this topology on stores and topics, in lines.

    The list is empty if the topics match the topology. Names and partitions are compared, records are not read. Raises
    KafkaError if brokers do not answer.
    """
    with closing(ConfluentAdmin(config)) as admin:
        topics = admin.topics()
        try:
            layout = layout_of(built, config, topics)
        except StreamsError as error:
            return StateChanges(refused=(str(error),)).lines()
        wrong = tuple(wrong_partitions(layout, topics))
        return (StateChanges(refused=wrong) if wrong else _compared(layout, topics, admin)).lines()


def state_changes(built: BuiltTopology, config: StreamsConfig) -> StateChanges:
    """Return the effects of a start with this topology on changelogs and offsets.

    It also reads the last records of each changelog with the serdes of the topology. Raises KafkaError if brokers do
    not answer.
    """
    with closing(ConfluentAdmin(config)) as admin, closing(ConfluentFetcher(config)) as fetcher:
        topics = admin.topics()
        try:
            layout = layout_of(built, config, topics)
        except StreamsError as error:
            return StateChanges(refused=(str(error),))
        if refused := tuple(unfit_topics(layout, topics, admin, fetcher)):
            return StateChanges(refused=refused)
        found = _compared(layout, topics, admin)
        inputs = [partition for partition in sorted(layout.readers) if partition.topic in topics]
        committed = admin.committed_offsets(str(config.required("application.id")), inputs, stable=False)
        begun = _Inspection(layout, topics, admin, fetcher, committed).without_offset(inputs) if committed else ()
        return replace(found, differences=(*found.differences, *begun))


def _compared(layout: Layout, topics: Mapping[str, int], admin: ConfluentAdmin) -> StateChanges:
    stores = {store: place.topic for task in sorted(layout.groups) for store, place in layout.changelogs(task).items()}
    created = sorted(layout.topology.repartition_topics.keys() - topics.keys())
    left = _other_topics(admin, layout, topics)
    return StateChanges(
        tuple(store for store, topic in stores.items() if topic in topics),
        tuple(store for store, topic in stores.items() if topic not in topics),
        (
            *(f"topic {topic} is new" for topic in created),
            *(f"topic {topic} is not of this program; it is kept" for topic in left),
        ),
    )


def _other_topics(admin: ConfluentAdmin, layout: Layout, topics: Iterable[str]) -> list[str]:
    """Return the internal topics of the application of `layout` that its topology does not have.

    Names alone do not distinguish the topics of `shop` from those of `shop-eu`. So topics of another application with
    its own group are left out.
    """
    name = str(layout.config.required("application.id"))
    own = own_topics(layout.topology) | source_topics(layout.topology)
    named = [topic for topic in topics if topic not in own and _is_internal(topic, name)]
    if not named:
        return []
    longer = [group.group_id for group in admin.groups() if group.group_id.startswith(f"{name}-")]
    return sorted(topic for topic in named if not any(_is_internal(topic, other) for other in longer))


def _is_internal(topic: str, application_id: str) -> bool:
    """Return whether `topic` has the name of an internal topic of an application."""
    prefix = f"{application_id}-"
    return topic.startswith(prefix) and topic.removeprefix(prefix).endswith(_INTERNAL)


class _Inspection:
    """Inspects the topics and offsets of an application.

    Args:
        layout: the tasks of the application.
        topics: the topics of the brokers, with their partition counts.
        admin: a client.
        fetcher: reads the changelogs.
        committed: the committed offsets of the group.
    """

    def __init__(
        self,
        layout: Layout,
        topics: Mapping[str, int],
        admin: Admin,
        fetcher: Fetcher,
        committed: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        self._layout = layout
        self._topics = topics
        self._admin = admin
        self._fetcher = fetcher
        self._committed = committed
        self._group = str(layout.config["application.id"])

    def completed(self, found: Takeover, others: Sequence[str]) -> Takeover:
        """Return `found` with inputs, stores and their obstacles.

        Args:
            found: the result so far.
            others: internal topics of the application that this topology does not have.
        """
        inputs = [partition for partition in sorted(self._layout.readers) if partition.topic in self._topics]
        begins, ends = self._admin.beginning_offsets(inputs), self._admin.end_offsets(inputs)
        wrong = list(wrong_partitions(self._layout, self._topics))
        obstacles = [
            *wrong,
            *self._out_of_range(begins, ends),
            *map(self._of_another_topology, others),
            *self._missing_repartitions(),
            *self._state_elsewhere(),
            *([] if wrong else self._state_without_offsets(begins, ends)),
            *([] if wrong else self._deleted_state()),
            *filter(None, [moved_partitions(self._layout, self._committed)]),
        ]
        warnings = list(self.without_offset(inputs))
        stores = []
        for changelog, places in sorted(self._changelogs().items()):
            name = places[0][0]
            if changelog not in self._topics:
                if self._committed:
                    obstacles.append(
                        f"Store {name} has no changelog: there is no topic {changelog}. Does the other application use "
                        "another name for the store or its operator? Compare `penstock describe` with its description."
                    )
            elif not wrong:
                size = self._size([partition for _, partition in places])
                stores.append(RestoredStore(name, changelog, sum(size.values())))
        if not wrong:
            obstacles += self.unfit_changelogs()
        return replace(
            found,
            inputs=tuple(self._input(partition, ends[partition]) for partition in inputs),
            stores=tuple(stores),
            obstacles=(*found.obstacles, *obstacles),
            warnings=(*found.warnings, *warnings),
        )

    def unfit_changelogs(self) -> Iterator[str]:
        """Yield the reasons why records of existing changelog topics do not match their stores."""
        for changelog, places in sorted(self._changelogs().items()):
            if changelog in self._topics:
                yield from self._unfit(places[0][0], [partition for _, partition in places])

    def _input(self, partition: TopicPartition, end: int) -> InputOffset:
        found = self._committed.get(partition)
        if found is None:
            return InputOffset(partition, None, end, NO_TIMESTAMP)
        return InputOffset(partition, found.offset, end, PartitionMetadata.decode(found.metadata).partition_time)

    def _out_of_range(self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Iterator[str]:
        for partition, (offset, *_) in sorted(self._committed.items()):
            if not begins[partition] <= offset <= ends[partition]:
                yield (
                    f"The group {self._group} has committed offset {offset} of {partition}, which has the offsets "
                    f"{begins[partition]} to {ends[partition]}: its records there are gone, or it is another topic. "
                    "Set the offset (penstock groups reset)."
                )

    def _of_another_topology(self, topic: str) -> str:
        """Return the obstacle of an internal topic that this topology does not have."""
        what = "a store" if topic.endswith(_INTERNAL[0]) else "a repartition"
        return (
            f"Topic {topic} is of {what} that this topology does not have. Compare the names that `penstock describe` "
            "gives with those of the other application. If neither it nor another application whose application.id "
            f"begins with {self._group}- uses the topic, delete it."
        )

    def _state_elsewhere(self) -> Iterator[str]:
        """Yield an error if the changelogs lack the state that belongs to the offsets."""
        try:
            check_has_state(self._committed if self._layout.stateful else {})
        except StreamsError as error:
            yield str(error)

    def _state_without_offsets(
        self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[str]:
        """Yield the tasks with state but without offsets, which would process their input again."""
        for task, group in sorted(self._layout.groups.items()):
            inputs = [str(each) for each in group if begins.get(each, 0) < ends.get(each, 0)]
            if not inputs or not self._committed.keys().isdisjoint(group):
                continue
            changelogs = sorted(self._layout.followed_changelogs(task).items())
            existing = ((store, partition) for store, partition in changelogs if partition.topic in self._topics)
            full = next(((store, partition) for store, partition in existing if self._has_records(partition)), None)
            if full is not None:
                store, partition = full
                yield (
                    f"The group {self._group} has committed no offset of {', '.join(inputs)}, but {partition} has "
                    f"records, so store {store} has state from there. The offsets have expired "
                    "(offsets.retention.minutes) or were deleted, and a start would process the records once more. Set "
                    "the offsets (penstock groups reset), or start over (penstock reset)."
                )

    def _deleted_state(self) -> Iterator[str]:
        """Yield the changelogs that lost records otherwise than by compaction, though their store needs all."""
        configs = {topic.name: topic.config for topic in internal_topics(self._layout)}
        for changelog, places in sorted(self._changelogs().items()):
            if changelog not in self._topics or "delete" in configs.get(changelog, {}).get("cleanup.policy", "delete"):
                continue
            for partition, begin in sorted(self._admin.beginning_offsets([each for _, each in places]).items()):
                if begin:
                    yield (
                        f"Store {places[0][0]} would be incomplete: {partition} begins at offset {begin}, and "
                        "compaction alone does not delete the records before it. Has the topic had cleanup.policy="
                        "delete, or has somebody deleted its records? Restore the topic from a backup, or start "
                        "over (penstock reset)."
                    )

    def _has_records(self, partition: TopicPartition) -> bool:
        """Return whether a partition has a committed record."""
        (begin,) = self._admin.beginning_offsets([partition]).values()
        (end,) = self._admin.end_offsets([partition], read_committed=True).values()
        return any(map(len, self._fetcher.fetch(partition, begin, end, read_committed=True)))

    def _missing_repartitions(self) -> Iterator[str]:
        """Yield the repartition topics of this topology that the application lacks."""
        for topic in sorted(self._layout.topology.repartition_topics.keys() - self._topics.keys()):
            if self._committed:
                yield (
                    f"There is no topic {topic}, through which this topology repartitions. Does the other application "
                    "use another name for the operator? Compare `penstock describe` with its description."
                )

    def without_offset(self, inputs: Iterable[TopicPartition]) -> Iterator[str]:
        """Yield the inputs whose start auto.offset.reset decides."""
        if not self._committed:
            yield f"The group {self._group} has committed no offset: this is the first start of the application."
            return
        external = source_topics(self._layout.topology)
        for partition in inputs:
            if partition.topic in external and partition not in self._committed:
                yield f"The group {self._group} has no offset of {partition}: auto.offset.reset says where it begins."

    def _changelogs(self) -> dict[str, list[tuple[str, TopicPartition]]]:
        """Return the partitions of each changelog topic, with the name of their store."""
        found: dict[str, list[tuple[str, TopicPartition]]] = {}
        for task in sorted(self._layout.groups):
            for store, partition in self._layout.changelogs(task).items():
                found.setdefault(partition.topic, []).append((store, partition))
        return found

    def _size(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        begins, ends = self._admin.beginning_offsets(partitions), self._admin.end_offsets(partitions)
        return {partition: ends[partition] - begins[partition] for partition in partitions}

    def _unfit(self, store: str, partitions: list[TopicPartition]) -> Iterator[str]:
        """Yield the reasons why the last records of a changelog do not match `store`."""
        begins = self._admin.beginning_offsets(partitions)
        ends = self._admin.end_offsets(partitions, read_committed=True)
        stores = next(spec.stores for spec in self._layout.topology.subtopologies if store in spec.stores)
        for partition in partitions:
            copy = ChangelogCopy({store: stores[store]}, {store: partition}, self._layout.config, MemoryBase())
            start, end = max(begins[partition], ends[partition] - _TRIED_RECORDS), ends[partition]
            try:
                for batch in self._fetcher.fetch(partition, start, end, read_committed=True):
                    copy.apply(store, batch, end)
                    check_serdes_of(stores[store], self._layout.config, partition.topic, batch)
            except ProcessorStateError as error:
                yield f"Store {store}, {partition}: {error}"


def check_serdes_of(builder: StoreBuilder, config: StreamsConfig, changelog: str, records: RecordBatch) -> None:
    """Raise ProcessorStateError if a store's serdes cannot read `records` of its changelog topic.

    Records of `suppress` and of users' own stores are not checked.
    """
    keys, values = records.keys, records.values
    match builder.supplier:
        case WindowBytesStoreSupplier():
            suffix = WINDOW_SUFFIX_SIZE
        case SessionBytesStoreSupplier():
            suffix = SESSION_SUFFIX_SIZE
        case TimeOrderedKeyValueBytesStoreSupplier():
            suffix = 0
            keys, values = RecordBufferFormat().entries(records)
        case KeyValueBytesStoreSupplier() | LruMapBytesStoreSupplier() | VersionedBytesStoreSupplier():
            suffix = 0
        case _:
            return
    serdes = {part: store_serde(builder, part, config) for part in ("key", "value")}
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        for part, data in (("key", key[: len(key) - suffix]), ("value", value)):
            try:
                if data is not None:
                    serdes[part].deserialize(changelog, data, records.headers_at(row))
            except Exception as error:  # a user's serde may raise anything
                raise ProcessorStateError(
                    f"{serdes[part]} cannot read the {part} {data!r:.100} of offset {records.offsets[row]}: "
                    f"{type(error).__name__}: {error}. Which serde does the other application use?"
                ) from error
