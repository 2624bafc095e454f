"""Serialization of tapped records, from the task's process to the display.

Keys and values of the program's own classes are pickled by value. One that cannot be pickled is sent as text, because a
sample is for display only.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import cloudpickle

from penstock.notebook import value_text
from penstock.task.taps import TappedRecord


def encoded_records(records: Iterable[TappedRecord]) -> list[bytes]:
    """Return each record as bytes for `decoded_records`."""
    return [
        cloudpickle.dumps(tuple(each._replace(key=_sendable(each.key), value=_sendable(each.value))))
        for each in records
    ]


def decoded_records(data: Iterable[bytes]) -> list[TappedRecord]:
    """Return the records from `encoded_records`."""
    return [TappedRecord(*pickle.loads(each)) for each in data]


def _sendable(part: Any) -> Any:
    try:
        pickle.loads(cloudpickle.dumps(part))
    except Exception:  # any error from an object's own pickling
        return value_text(part)
    return part
