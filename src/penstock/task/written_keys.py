"""The keys of a batch as a sink writes them, each distinct one once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.record import RecordBatch, column_of
from penstock.serdes import Serde
from penstock.serdes.columns import Places, distinct
from penstock.serdes.unread_column import UnreadColumn


class WrittenKeys(NamedTuple):
    """The keys of a batch as bytes.

    Args:
        keys: of each row.
        entries: keys that stand for all, for their partitions.
        places: the index in `entries` of each row.
    """

    keys: Sequence[bytes | None]
    entries: list[bytes | None]
    places: Places


def written_keys(serde: Serde, topic: str, batch: RecordBatch, partitions: int) -> WrittenKeys:
    """Return the keys of `batch` as bytes; raises any error of the serde.

    Args:
        serde: of the keys.
        topic: the topic to which they are written.
        batch: the records.
        partitions: the number of partitions of the topic. If there is one, all keys belong to it.
    """
    unread = batch.keys.written_by(serde) if isinstance(batch.keys, UnreadColumn) else None
    if unread is None:
        entries, places = serde.serialize_distinct(topic, batch.keys, batch.headers)
    elif partitions == 1:
        return WrittenKeys(unread, unread[:1], np.zeros(len(unread), np.int32))
    else:
        entries, places = distinct(unread)
    return WrittenKeys(column_of(entries, places), entries, places)
