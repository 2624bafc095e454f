"""The protocol of a serde. A serde has no state: one instance may serve several topics, tasks and processes, and it can
be pickled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

from typing_extensions import TypeVar

from penstock.errors import ConfigError
from penstock.record import Headers
from penstock.serdes.columns import Places, distinct

T = TypeVar("T", default=Any)


def missing_serde(what: str) -> ConfigError:
    """Return the error for a serde of `what` (key or value) that is neither given nor a default."""
    return ConfigError(
        f"Please specify a {what} serde or set one through StreamsConfig#DEFAULT_{what.upper()}_SERDE_CLASS_CONFIG"
    )


class Serde(Generic[T]):
    """Writes objects of one type as bytes and reads them back; None stands for null and is never passed in (Kafka
    class: Serde).

    A serde of one's own overrides `serialize` and `deserialize`; the column forms are there to be made faster. For what
    they cannot write or read both raise TypeError, where the value is of another type, or SerializationError.
    """

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return `value` (not None) as bytes, to be written to `topic`."""
        raise NotImplementedError

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Return the object that `data` (not None), read from `topic`, stands for."""
        raise NotImplementedError

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[T]:
        """Return this serde with the defaults of the configuration in the places of inner serdes that it was made
        without; a serde without inner serdes returns itself (Kafka class: WrappingNullableSerde).
        """
        return self

    def serialize_column(self, topic: str, values: Sequence[Any]) -> list[bytes | None]:
        """Return each of `values` as bytes, None for None."""
        serialize = self.serialize
        return [None if value is None else serialize(topic, value) for value in values]

    def serialize_distinct(self, topic: str, values: Sequence[Any]) -> tuple[list[bytes | None], Places]:
        """Return the distinct bytes of a column of values, in the order of their first rows (None for None), and the
        place of each value's bytes among them."""
        return distinct(self.serialize_column(topic, values))

    def deserialize_column(self, topic: str, data: Sequence[bytes | None]) -> list[Any]:
        """Return each of `data` as an object, None for None."""
        deserialize = self.deserialize
        return [None if item is None else deserialize(topic, item) for item in data]

    def is_readable_column(self, data: Sequence[bytes | None]) -> bool:
        """Return whether each of `data` can be read; False where that is not known.

        The task may then leave out to read what nobody looks at.
        """
        return False

    def is_canonical_column(self, data: Sequence[bytes | None]) -> bool:
        """Return whether each of `data` can be read and, read and written again, would be the same bytes; False where
        that is not known.

        The task may then leave out to read what is only counted or stored again.
        """
        return False


def or_default(
    inner: Serde | None, default: Serde | None, key_serde: Serde | None, value_serde: Serde | None
) -> Serde | None:
    """Return `inner` with the defaults in its own inner places, `default` where it is None."""
    return default if inner is None else inner.with_defaults(key_serde, value_serde)


def inner_serde(serde: Serde | None, what: str) -> Serde:
    """Return `serde`, which is for a `what` (key or value) within something larger; raises ConfigError where it was
    neither given nor a default.
    """
    if serde is None:
        raise missing_serde(what)
    return serde
