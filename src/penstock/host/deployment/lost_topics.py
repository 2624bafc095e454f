"""Detection of topics that were deleted, and perhaps created again, since an application used them.

The metadata of the group's committed offsets has, for each topic of a task, a number for its name and one for its id.
It therefore survives the loss of every state directory, and excludes topics added by a changed program. A reset deletes
it together with the group.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.client.api import OffsetAndMetadata
from penstock.errors import MissingInternalTopicError
from penstock.host.commits.committing import TOPIC, PartitionMetadata
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.offset_resets import recreated_topics_error
from penstock.host.deployment.topics import pattern_topics
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec
from penstock.record import TopicPartition

_UNKNOWN_ID: Final = 0
_LONG: Final = struct.Struct(">q")


class LostTopic(NamedTuple):
    """A deleted topic that an application has used.

    store: the store of a changelog topic, None for others. use: what a task topic has, None for others.
    exists: whether the topic was created again.
    """

    name: str
    store: str | None
    exists: bool
    use: str | None = None


def used_topics(topology: BuiltTopology, spec: SubtopologySpec) -> frozenset[str]:
    """Return the topics that must exist while tasks of a sub-topology have committed offsets.

    These are its changelogs, its task topics, the repartition topics that it reads and writes, and its sources
    except those that only a pattern names.
    """
    written = [topic for topic in spec.sink_topics if topic in topology.repartition_topics]
    used = frozenset([*spec.written_changelogs.values(), *spec.task_topics, *spec.source_topics, *written])
    return used - pattern_topics(topology)


def topic_entries(ids: Mapping[str, str], names: Iterable[str]) -> dict[str, int]:
    """Return the entries for the topics `names` in the metadata of an offset. ids: of topics, if brokers have ids."""
    return {_entry(name): _number(ids.get(name)) for name in sorted(names)}


def lost_topics(
    layout: Layout,
    topics: Mapping[str, int],
    ids: Mapping[str, str],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[LostTopic]:
    """Return the internal topics of `layout` that were deleted since the offsets were committed.

    Args:
        layout: the tasks.
        topics: the number of partitions of each existing topic.
        ids: the ids of existing topics, if brokers have ids.
        committed: the offsets of the group.
    """
    stores = {
        topic: store for spec in layout.topology.subtopologies for store, topic in spec.written_changelogs.items()
    }
    uses = layout.topology.uses_of_task_topics
    names = [*layout.topology.repartition_topics, *uses, *stores]
    return [
        LostTopic(name, stores.get(name), name in topics, uses.get(name))
        for name in _lost(names, topics, ids, committed)
    ]


def check_topics(
    layout: Layout,
    topics: Mapping[str, int],
    ids: Mapping[str, str],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Raise StreamsError if topics were deleted since the offsets were committed; see `lost_topics`."""
    if lost := lost_topics(layout, topics, ids, committed):
        raise missing_internal_topics(str(layout.config["application.id"]), lost)
    sources = {topic for spec in layout.topology.subtopologies for topic in spec.source_topics}
    sources -= layout.topology.repartition_topics.keys() | pattern_topics(layout.topology)
    if recreated := list(_lost(sources, topics, ids, committed)):
        raise recreated_topics_error(recreated)


def missing_internal_topics(application_id: str, lost: Iterable[LostTopic]) -> MissingInternalTopicError:
    """Return the error for deleted internal topics."""
    named = "; ".join(map(_text, lost))
    return MissingInternalTopicError(
        f"Internal topics of {application_id} were deleted since its group committed offsets: {named}. Nothing was "
        "created or changed. To go on, stop all instances and choose one: `penstock recover FILE --from-state` writes "
        "changelogs again from the state on this machine; `penstock reset FILE` deletes offsets and state, so that the "
        "next start processes its source topics again; `penstock recover FILE --as-they-are` goes on with the topics "
        "that there are and creates the missing ones empty, and what only the deleted ones had is lost."
    )


def recorded_topics(
    names: Iterable[str], committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[str, frozenset[int]]:
    """Return the topics of `names` that were used, with the numbers of their former ids."""
    known: dict[str, set[int]] = {}
    for each in committed.values():
        for entry, number in PartitionMetadata.decode(each.metadata).processor_metadata.items():
            known.setdefault(entry, set()).add(number)
    return {name: frozenset(known[entry]) for name in sorted(names) if (entry := _entry(name)) in known}


def _lost(
    names: Iterable[str],
    topics: Mapping[str, int],
    ids: Mapping[str, str],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> Iterator[str]:
    for name, numbers in recorded_topics(names, committed).items():
        same = {_UNKNOWN_ID, _number(ids[name])} if name in ids else numbers
        if name not in topics or not numbers <= same:
            yield name


def _text(lost: LostTopic) -> str:
    what = "a repartition topic" if lost.store is None else f"the changelog of store {lost.store}"
    if lost.use is not None:
        what = lost.use
    return f"{lost.name} ({what}{', which was created again' if lost.exists else ''})"


def _entry(name: str) -> str:
    return f"{TOPIC}{zlib.crc32(name.encode()):08x}"


def _number(topic_id: str | None) -> int:
    """Return the first eight bytes of an id as a number."""
    if topic_id is None:
        return _UNKNOWN_ID
    padded = topic_id.replace("+", "-").replace("/", "_") + "=="
    number: int = _LONG.unpack_from(base64.urlsafe_b64decode(padded))[0]
    return number
