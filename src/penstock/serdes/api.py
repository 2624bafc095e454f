"""The protocol of a serde. A serde has no state: one instance may serve several topics, tasks and processes, and it can
be pickled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic

from typing_extensions import TypeVar

from penstock.errors import ConfigError
from penstock.record import Headers
from penstock.serdes.columns import Places, distinct

T = TypeVar("T", default=Any)


def missing_serde(what: str) -> ConfigError:
    """Return the error for a missing serde of `what` (key or value), which has no default either."""
    return ConfigError(
        f"Please specify a {what} serde or set one through StreamsConfig#DEFAULT_{what.upper()}_SERDE_CLASS_CONFIG"
    )


class Serde(Generic[T]):
    """Writes objects of one type as bytes and reads them back; None represents null and is never passed in (Kafka
    class: Serde).

    Your own serde overrides `serialize` and `deserialize`; the column forms are there to be made faster, and must
    give the same row by row. In them `headers` has those of each row, or is None if no row has any. For what they
    cannot write or read all raise TypeError, where the value is of another type, or SerializationError.
    """

    unchanging_types: frozenset[type] = frozenset()
    """Immutable types that are read back exactly as they were written, so that an operator need not write and read them
    to know the content of its store."""

    @property
    def uses_headers(self) -> bool:
        """Whether what is written or read may depend on the headers; where it does not, stores need not know whose
        headers these are, and work column by column on records with headers, too."""
        return True

    repeatable: bool = False
    """Whether a value that was read, written and read again is the same; if that is unknown, operators look at each
    entry of a window or session separately."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Give a class that overrides `serialize` or `deserialize` alone the column forms that call it, and say nothing
        of its values: its base knows nothing of it."""
        super().__init_subclass__(**options)
        for method, following in _FOLLOWING.items():
            for name in following:
                if _place(cls, method) < _place(cls, name):
                    setattr(cls, name, vars(Serde)[name])

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

    def serialize_column(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> list[bytes | None]:
        """Return each of `values` as bytes, None for None."""
        serialize = self.serialize
        if headers is None:
            return [None if value is None else serialize(topic, value) for value in values]
        return [
            None if value is None else serialize(topic, value, own) for value, own in zip(values, headers, strict=True)
        ]

    def serialize_distinct(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> tuple[list[bytes | None], Places]:
        """Return the distinct bytes of a column of values, in the order of their first rows (None for None), and the
        place of each value's bytes among them."""
        return distinct(self.serialize_column(topic, values, headers))

    def deserialize_column(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[Headers] | None = None
    ) -> list[Any]:
        """Return each of `data` as an object, None for None."""
        deserialize = self.deserialize
        if headers is None:
            return [None if item is None else deserialize(topic, item) for item in data]
        return [
            None if item is None else deserialize(topic, item, own) for item, own in zip(data, headers, strict=True)
        ]

    def is_readable_column(self, data: Sequence[bytes | None]) -> bool:
        """Return whether each of `data` can be read; False if that is not known.

        The task may then leave out to read what nobody looks at.
        """
        return False

    def is_canonical_column(self, data: Sequence[bytes | None]) -> bool:
        """Return whether each of `data` can be read and, read and written again, would be the same bytes; False if
        that is not known.

        The task may then leave out to read what is only counted or stored again.
        """
        return False


_OF_BOTH = ("is_canonical_column", "unchanging_types", "repeatable", "uses_headers")
_FOLLOWING: Final = {
    "serialize": ("serialize_column", "serialize_distinct", *_OF_BOTH),
    "deserialize": ("deserialize_column", "is_readable_column", *_OF_BOTH),
}
"""What says or does for columns what each method does for one value."""


def _place(cls: type, name: str) -> int:
    """Return which class, in the order in which Python looks through them, `cls` has `name` from."""
    return next(place for place, base in enumerate(cls.__mro__) if name in vars(base))


def or_default(
    inner: Serde | None, default: Serde | None, key_serde: Serde | None, value_serde: Serde | None
) -> Serde | None:
    """Return `inner` with the defaults in its own inner places, `default` where it is None."""
    return default if inner is None else inner.with_defaults(key_serde, value_serde)


def any_uses_headers(*inner: Serde | None) -> bool:
    """Return whether what one of `inner` writes or reads may depend on the headers; of one that is not known yet, it
    may."""
    return any(serde is None or serde.uses_headers for serde in inner)


def inner_serde(serde: Serde | None, what: str) -> Serde:
    """Return `serde`, which is for a `what` (key or value) within something larger; raises ConfigError if it was not
    given and has no default.
    """
    if serde is None:
        raise missing_serde(what)
    return serde
