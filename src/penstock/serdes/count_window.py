"""The serde of windows of n records: version, number of records, whether the window is full, and the aggregate.

A window may be without an aggregate.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde, any_uses_headers, inner_serde, or_default
from penstock.windows import CountWindow

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">Bq??")
"""The version, the number of records, whether the window is full, and whether it has an aggregate."""


class CountWindowSerde(Serde[CountWindow[Any]]):
    """Converts windows of n records.

    Args:
        inner: the serde of the aggregates; None means the configured default.
    """

    def __init__(self, inner: Serde | None) -> None:
        self.inner = inner
        self.repeatable = inner is not None and inner.repeatable

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[CountWindow[Any]]:
        """Return this serde with the default value serde if it is missing, also within its part."""
        return CountWindowSerde(or_default(self.inner, value_serde, key_serde, value_serde))

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the aggregates."""
        return (self.inner,)

    @property
    def uses_headers(self) -> bool:
        """Whether the serde of the aggregates uses the headers."""
        return any_uses_headers(self.inner)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise a window."""
        if not isinstance(value, CountWindow):
            raise TypeError(f"Cannot write to {topic!r}: expected a CountWindow, got {value!r:.100}.")
        head = _HEAD.pack(_VERSION, value.count, value.is_full, value.aggregate is not None)
        if value.aggregate is None:
            return head
        return head + inner_serde(self.inner, "value").serialize(topic, value.aggregate, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> CountWindow[Any]:
        """Deserialise a window; raises SerializationError for other bytes."""
        if len(data) < _HEAD.size or data[0] != _VERSION:
            raise SerializationError(
                f"Cannot read {data[:100]!r} from {topic!r} as a window of n records of version {_VERSION}. If the "
                "program had another aggregation before, give this one a store with a new name."
            )
        _, count, is_full, has_aggregate = _HEAD.unpack_from(data)
        if not has_aggregate:
            return CountWindow(count, is_full, None)
        aggregate = inner_serde(self.inner, "value").deserialize(topic, data[_HEAD.size :], headers)
        return CountWindow(count, is_full, aggregate)
