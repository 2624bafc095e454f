"""Tapped records as bytes, from the process of a task to the one that shows them.

Keys and values of the program's own classes go by value. One that cannot be pickled goes as a text, because a sample
is there to be looked at.
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
    """Return the records that `encoded_records` wrote."""
    return [TappedRecord(*pickle.loads(each)) for each in data]


def _sendable(part: Any) -> Any:
    try:
        pickle.loads(cloudpickle.dumps(part))
    except Exception:  # whatever an object's own pickling raises
        return value_text(part)
    return part
