"""The histories that a start reads: those of the program, and those that the checkpoint has begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError
from penstock.host.deployment.source_lines import source_of
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.stored_history import histories_of, stored_histories, unread_histories
from penstock.host.spark.protocol.history_bounds import HistoryBounds
from penstock.plan.subtopology import BuiltTopology


def prepared_histories(
    built: BuiltTopology, checkpoint: Checkpoint, known: Mapping[str, Sequence[int]], config: StreamsConfig
) -> dict[str, HistoryBounds]:
    """Return the histories in the checkpoint that the application reads or has read.

    A program that no longer has a history that was begun reads it to its end.

    Args:
        built: the topology, with the histories of the program.
        checkpoint: the checkpoint.
        known: the positions of the topics that were read before.
        config: of the application.

    Raises:
        ConfigError: a history is not read to its end, and changelog topics are written.
        StreamsError: the checkpoint has no history for a topic of the program, because the topic was read before.
    """
    stored = stored_histories(checkpoint.uri)
    histories = {topic: each for topic, each in stored.items() if topic in known or topic in built.histories}
    _check_are_stored(built, histories.keys())
    unread = unread_histories(histories, {**{topic: each.first for topic, each in histories.items()}, **known})
    if unread and config["penstock.changelog.topics"]:
        raise ConfigError(
            f"The history of topic {unread[0]} is not read yet ({source_of(built, unread[0])}), and another host could "
            "not continue inside it: set penstock.changelog.topics only after it is read."
        )
    return histories


def with_histories(known: Mapping[str, list[int]], histories: Mapping[str, HistoryBounds]) -> dict[str, list[int]]:
    """Return the positions `known`, with the first row of each history whose topic has no position yet."""
    return {**{topic: list(each.first) for topic, each in histories.items()}, **known}


def delete_other_histories(checkpoint: Checkpoint, generation: int, histories: Set[str]) -> None:
    """Delete the histories in the checkpoint that are not of the topics `histories`.

    They are of starts that failed, and no epoch has read them. Once their topic has a position, they would pass for
    the rows before it.

    Raises TaskMigratedError if another program has taken over the checkpoint since `generation`.
    """
    files = histories_of(checkpoint.uri)
    others = sorted({each.name for each in files.find("")} - histories)
    if others:
        checkpoint.check_generation(generation)  # they may be a newer driver's
    for topic in others:
        files.delete_directory(topic)


def _check_are_stored(built: BuiltTopology, stored: Set[str]) -> None:
    missing = sorted(built.histories.keys() - stored)
    if missing:
        raise StreamsError(
            f"Topic {missing[0]} has a history ({source_of(built, missing[0])}), and the application has read the "
            f"topic before, without it or in another checkpoint: a history comes first. Replace it by "
            f"stream({missing[0]!r}) to continue, or begin with the history: with another application.id, or after "
            "penstock reset."
        )
