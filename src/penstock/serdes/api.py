"""The protocol of serdes.

A serde has no state: one instance may serve several topics, tasks and processes, and it is picklable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic, Literal

from typing_extensions import TypeVar

from penstock.errors import ConfigError
from penstock.record import ArrayColumn, Headers
from penstock.serdes.columns import Places, distinct

T = TypeVar("T", default=Any)

Library = Literal["numpy", "pyarrow"]
"""The library of an array."""


def missing_serde(what: str) -> ConfigError:
    """Return the error for a missing serde of `what` (key or value) without a default."""
    return ConfigError(
        f"Please specify a {what} serde or set one through StreamsConfig#DEFAULT_{what.upper()}_SERDE_CLASS_CONFIG"
    )


class Serde(Generic[T]):
    """Converts objects of one type to bytes and back (Kafka class: Serde).

    None represents null and is never passed in.

    Your own serde overrides `serialize` and `deserialize`; override the column methods only for speed, with the same
    result for each row. Their `headers` has one entry per row, or is None if no row has headers. A serde that writes
    headers of records derives from `HeaderSerde`. All methods raise TypeError for a value of an unsupported type, and
    SerializationError for other values or bytes that they cannot convert.
    """

    unchanging_types: frozenset[type] = frozenset()
    """Immutable types that survive the round trip unchanged.

    An operator need not write and read them to know the content of its store.
    """

    @property
    def uses_headers(self) -> bool:
        """Whether the conversion may depend on the headers.

        If not, stores need not know the record of the headers, and process records with headers by column, too.
        """
        return True

    @property
    def writes_headers(self) -> bool:
        """Whether `serialize_record` changes the headers of a record."""
        return False

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serdes of the parts of a value; None for one that the configuration names.

        A serde that contains others names them here.
        """
        return ()

    @property
    def is_of_one_process(self) -> bool:
        """Whether only the process that wrote bytes can read them, or those of a part."""
        return any(inner is not None and inner.is_of_one_process for inner in self.inner_serdes)

    repeatable: bool = False
    """Whether a value that was read survives another round trip unchanged.

    If unknown, operators process each entry of a window or session separately.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Reset the column methods of a class that only overrides `serialize` or `deserialize`.

        They call the overridden method. The properties of values are reset as well: the base class does not know the
        subclass's values.
        """
        super().__init_subclass__(**options)
        for method, following in _FOLLOWING.items():
            for name in following:
                if _place(cls, method) < _place(cls, name):
                    setattr(cls, name, vars(Serde)[name])

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise `value`, not None, for `topic`."""
        raise NotImplementedError

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Deserialise `data`, not None, from `topic`."""
        raise NotImplementedError

    def serialize_record(self, topic: str, value: Any, headers: Headers = ()) -> tuple[bytes, Headers]:
        """Serialise `value`, not None, for a record of `topic`, and return its headers as well.

        Sinks call this method, and stores `serialize`: only a record has headers to write to (Kafka:
        Serializer.serialize with headers).
        """
        return self.serialize(topic, value, headers), headers

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[T]:
        """Return this serde with the configured defaults in place of its missing inner serdes.

        A serde without inner serdes returns itself (Kafka class: WrappingNullableSerde).
        """
        return self

    def serialize_column(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> list[bytes | None]:
        """Serialise each value; None stays None."""
        serialize = self.serialize
        if headers is None:
            return [None if value is None else serialize(topic, value) for value in values]
        return [
            None if value is None else serialize(topic, value, own) for value, own in zip(values, headers, strict=True)
        ]

    def serialize_distinct(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> tuple[list[bytes | None], Places]:
        """Return the distinct serialised values of a column, and each value's position among them.

        They are in the order of their first rows; None stays None.
        """
        return distinct(self.serialize_column(topic, values, headers))

    def deserialize_column(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[Headers] | None = None
    ) -> list[Any]:
        """Deserialise each item; None stays None."""
        deserialize = self.deserialize
        if headers is None:
            return [None if item is None else deserialize(topic, item) for item in data]
        return [
            None if item is None else deserialize(topic, item, own) for item, own in zip(data, headers, strict=True)
        ]

    def deserialize_array(self, topic: str, data: Sequence[bytes | None], library: Library) -> ArrayColumn[Any] | None:
        """Deserialise the items as an array of `library`, without an object for each.

        Returns None if an array cannot have exactly these values, or not all items are readable: then the caller uses
        `deserialize_column`.
        """
        return None

    def is_readable_column(self, data: Sequence[bytes | None]) -> bool:
        """Return whether all of `data` is readable; False if unknown.

        The task may then skip reading unused data.
        """
        return False

    def is_canonical_column(self, data: Sequence[bytes | None]) -> bool:
        """Return whether all of `data` survives reading and writing unchanged; False if unknown.

        The task may then skip reading data that is only counted or stored again.
        """
        return False


_OF_BOTH = ("is_canonical_column", "unchanging_types", "repeatable", "uses_headers")
_FOLLOWING: Final = {
    "serialize": ("serialize_record", "writes_headers", "serialize_column", "serialize_distinct", *_OF_BOTH),
    "deserialize": ("deserialize_column", "deserialize_array", "is_readable_column", *_OF_BOTH),
}
"""The column methods and properties that depend on each method for single values."""


def read_column(
    serde: Serde,
    topic: str,
    data: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
    library: Library | None,
) -> Sequence[Any]:
    """Deserialise each item, as an array if a function takes one of `library`; raises the error of an item.

    None stays None.
    """
    array = serde.deserialize_array(topic, data, library) if library is not None and isinstance(data, list) else None
    return serde.deserialize_column(topic, data, headers) if array is None else array


def _place(cls: type, name: str) -> int:
    """Return the index in the MRO of `cls` of the class that defines `name`."""
    return next(place for place, base in enumerate(cls.__mro__) if name in vars(base))


def or_default(
    inner: Serde | None, default: Serde | None, key_serde: Serde | None, value_serde: Serde | None
) -> Serde | None:
    """Return `inner` with defaults for its own inner serdes, or `default` if it is None."""
    return default if inner is None else inner.with_defaults(key_serde, value_serde)


def any_uses_headers(*inner: Serde | None) -> bool:
    """Return whether the conversion by one of `inner` may depend on the headers.

    A serde that is not known yet counts as dependent.
    """
    return any(serde is None or serde.uses_headers for serde in inner)


def inner_serde(serde: Serde | None, what: str) -> Serde:
    """Return `serde`, for a `what` (key or value) within something larger.

    Raises ConfigError if it is missing and has no default.
    """
    if serde is None:
        raise missing_serde(what)
    return serde
