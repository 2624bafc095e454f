"""The batch numbers that functions of the program receive.

A table such as one of Delta stores the largest number that it has seen of an application, and skips smaller ones
without an error. Spark numbers the batches of each checkpoint from 0. So the start time of the numbering is added to
Spark's numbers: whatever happens to the checkpoint (a reset, a savepoint in an empty directory, files deleted by hand),
the numbers of one `application.id` do not go back, unless the clock does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from penstock.host.spark.checkpoints.documents import parsed, unsealed
from penstock.host.storage.files import Files
from penstock.host.storage.sealed_files import sealed
from penstock_broker.common.clock import Clock

_SPARK_OFFSETS: Final = "offsets"
"""Spark's log of the batches, in the checkpoint of a query."""


def first_number(files: Files, topic: str, clock: Clock) -> int:
    """Return the number of the first batch of `topic` in its checkpoint.

    It is durable before it is returned. A checkpoint with numbered batches keeps its numbers; if Spark's log of them is
    gone, new ones begin.

    Args:
        files: the directory with the checkpoints of the queries.
        topic: the topic that the query reads.
        clock: provides the first number, in ms.
    """
    path = f"{topic}.first"
    data, has_batches = files.read(path), bool(files.below(topic).find(_SPARK_OFFSETS))
    if data is not None and has_batches:
        name = f"{files.uri}/{path}"
        known: dict[str, int] = parsed(unsealed(data, name), name)
        return known["first"]
    first = 0 if has_batches else clock.milliseconds()
    files.write(path, sealed(orjson.dumps({"first": first})))
    return first


def numbered_from(first: int, function: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """Return `function` for batches that Spark numbers from 0."""

    def call(batch: Any, number: int) -> None:
        function(batch, first + number)

    return call
