"""The numbers of the batches that functions of the program get.

A table such as one of Delta keeps the largest number that it has seen of an application, and skips smaller ones without
an error. Spark numbers the batches of each checkpoint from 0 on. So what is added to its numbers is the time at which
the numbering begins: whatever becomes of the checkpoint (a reset, a savepoint in an empty directory, files deleted by
hand), the numbers of one `application.id` do not go back, unless the clock does.
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
"""Where Spark logs the batches in the checkpoint of a query."""


def first_number(files: Files, topic: str, clock: Clock) -> int:
    """Return the number of the first batch of `topic` in its checkpoint, which is durable before it is returned. A
    checkpoint in which batches are numbered already goes on with its numbers.

    files: the directory below which the checkpoints of the queries are.
    """
    path = f"{topic}.first"
    data = files.read(path)
    if data is not None:
        name = f"{files.uri}/{path}"
        known: dict[str, int] = parsed(unsealed(data, name), name)
        return known["first"]
    first = 0 if files.below(topic).find(_SPARK_OFFSETS) else clock.milliseconds()
    files.write(path, sealed(orjson.dumps({"first": first})))
    return first


def numbered_from(first: int, function: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """Return `function` for batches that Spark numbers from 0 on."""

    def call(batch: Any, number: int) -> None:
        function(batch, first + number)

    return call
