"""The history of a topic: rows outside of it, which a stream has before the records of the topic."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import TopologyError
from penstock_broker.common.durations import moment_ms


@dataclass(frozen=True, eq=False)
class TopicHistory:
    """The rows that a stream has before the records of a topic.

    Args:
        rows: a Spark DataFrame, or the paths of Parquet files; only the host uses it, and it never leaves the program.
        at: the change-over to the topic: a time in ms, or the first offset to read of each partition.
    """

    rows: Any
    at: int | Mapping[int, int]


def topic_history(rows: Any, topic: str, at: Any) -> TopicHistory:
    """Return the history of `topic`.

    Raises:
        TypeError: `at` is no time and no offsets, or `rows` are paths of other types than str and Path.
        ValueError: a partition or an offset is negative, or a datetime has no time zone.
        TopologyError: there are no paths or no offsets.
    """
    return TopicHistory(_checked_rows(rows, topic), _checked_change_over(at, topic))


def _checked_rows(rows: Any, topic: str) -> Any:
    """Return a DataFrame as it is, and paths as a tuple of strings."""
    if isinstance(rows, str | os.PathLike):
        return (os.fspath(rows),)
    if not isinstance(rows, list | tuple):
        return rows
    for path in rows:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(
                f"Expected a DataFrame or paths of Parquet files as the history of topic {topic}, got {path!r} among "
                "the paths."
            )
    if not rows:
        raise TopologyError(f"The history of topic {topic} has no files. Without a history, use stream({topic!r}).")
    return tuple(map(os.fspath, rows))


def _checked_change_over(at: Any, topic: str) -> int | Mapping[int, int]:
    if not isinstance(at, Mapping):
        return moment_ms(at, f"at, the time at which topic {topic} follows its history,")
    for partition, offset in at.items():
        for number, name in ((partition, "partition"), (offset, "offset")):
            if not isinstance(number, int) or isinstance(number, bool):
                raise TypeError(f"Expected at as offsets by partition of topic {topic}, got the {name} {number!r}.")
            if number < 0:
                raise ValueError(f"Expected at as offsets by partition of topic {topic}, got the {name} {number}.")
    if not at:
        raise TopologyError(
            f"There are no offsets at which topic {topic} follows its history. Give one for each of its partitions, "
            "or the time."
        )
    return dict(at)
