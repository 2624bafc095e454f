"""The change-over from a history to its topic, as the first offset to read of each partition."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.api import Admin
from penstock.errors import StreamsError
from penstock.plan.topic_history import TopicHistory
from penstock.record import TopicPartition


def change_over(admin: Admin, topic: str, partitions: int, history: TopicHistory, source: str) -> tuple[int, ...]:
    """Return the first offset to read of each partition of `topic`.

    Args:
        admin: a client of the brokers.
        topic: the topic.
        partitions: its number of partitions.
        history: the history, with the time or the offsets of the change-over.
        source: the source and its line, for messages.

    Raises:
        KafkaError: the brokers do not answer.
        StreamsError: the offsets do not fit the topic, or it may have lost records after the change-over.
    """
    inputs = [TopicPartition(topic, number) for number in range(partitions)]
    beginnings, ends = admin.beginning_offsets(inputs), admin.end_offsets(inputs, read_committed=True)
    if isinstance(history.at, Mapping):
        _check_partitions(topic, partitions, history.at, source)
        found = {tp: history.at[tp.partition] for tp in inputs}
    else:
        known = admin.offsets_for_time(inputs, history.at)
        found = {tp: known.get(tp, ends[tp]) for tp in inputs}
        ends = admin.end_offsets(inputs, read_committed=True)  # the first record of that time may have come meanwhile
        _check_no_gap({tp: at for tp, at in found.items() if at == beginnings[tp] > 0}, source)
    for tp, offset in found.items():
        if not beginnings[tp] <= offset <= ends[tp]:
            raise StreamsError(
                f"Topic {topic}, partition {tp.partition} cannot follow its history at offset {offset} ({source}): it "
                f"has the offsets {beginnings[tp]} to {ends[tp]}. Give offsets in this range, and a history that goes "
                "that far."
            )
    return tuple(found[tp] for tp in inputs)


def _check_partitions(topic: str, partitions: int, at: Mapping[int, int], source: str) -> None:
    wrong = sorted(at.keys() ^ set(range(partitions)))
    if wrong:
        why = "there is no such partition" if wrong[0] in at else "its offset is missing"
        raise StreamsError(
            f"Topic {topic} has the partitions 0 to {partitions - 1}, and at needs an offset for each of them "
            f"({source}). Partition {wrong[0]}: {why}."
        )


def _check_no_gap(first: Mapping[TopicPartition, int], source: str) -> None:
    """Raise StreamsError if `first` has partitions that begin after deleted records and after the change-over."""
    for tp, offset in first.items():
        raise StreamsError(
            f"Topic {tp.topic}, partition {tp.partition} has no records from before the change-over ({source}): its "
            f"first one, at offset {offset}, is later, and earlier ones are deleted, so records may be missing in "
            "between. Use a history that goes further and a later time, or give the offsets of all partitions, such "
            f"as at={{{tp.partition}: {offset}, ...}}, if nothing is missing."
        )
