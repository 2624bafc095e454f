"""The protocol of serdes: columns follow the methods for single values, and wrapping serdes follow their inner ones."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.record import Headers
from penstock.serdes import LongSerde, Serde, Serdes, StringSerde
from penstock.serdes.api import any_uses_headers, inner_serde, or_default
from penstock.serdes.changed import ChangedSerde
from penstock.serdes.windowed import WindowedSerdes


def test_a_serde_that_changes_how_numbers_are_read_says_nothing_of_columns() -> None:
    class Doubled(LongSerde):
        def deserialize(self, topic: str, data: bytes, headers: Any = ()) -> int:
            return 2 * super().deserialize(topic, data, headers)

    assert LongSerde().is_canonical_column([bytes(8), None])
    assert not Doubled().is_readable_column([bytes(8)])
    assert not Doubled().is_canonical_column([bytes(8)])


class LoudSerde(StringSerde):
    """Overrides what works on single values alone."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return f"{value}!{len(headers)}".encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return f"{data.decode()}?{len(headers)}"


class Loud:
    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return f"{value}!{len(headers)}".encode()


class MixedSerde(Loud, StringSerde):
    """Has the method of a class that is no serde."""


@pytest.mark.parametrize("serde", [LoudSerde(), MixedSerde()])
def test_columns_go_through_the_methods_that_a_subclass_overrides(serde: Serde) -> None:
    headers: list[Headers] = [(("h", b"1"),), (), ()]
    assert serde.serialize_column("t", ["a", None, "b"], headers) == [b"a!1", None, b"b!0"]
    assert serde.serialize_column("t", ["a", None, "b"]) == [b"a!0", None, b"b!0"]
    entries, places = serde.serialize_distinct("t", ["a", "a", "a"], headers)
    assert (entries, places.tolist()) == ([b"a!1", b"a!0"], [0, 1, 1])
    read = serde.deserialize_column("t", [b"a", None, b"b"], headers)
    assert read == [
        None if data is None else serde.deserialize("t", data, own)
        for data, own in zip([b"a", None, b"b"], headers, strict=True)
    ]
    assert not serde.is_canonical_column([b"a"])
    assert not serde.unchanging_types
    assert not serde.repeatable
    assert serde.uses_headers


@pytest.mark.parametrize(
    ("inner", "uses_headers"),
    [
        (Serdes.string(), False),
        (Serdes.json(), False),
        (Serdes.serde_from(lambda topic, value: value, lambda topic, data: data), False),
        (Serdes.serde_from(lambda topic, value, headers: value, lambda topic, data: data), True),
        (LoudSerde(), True),
    ],
)
def test_serdes_around_others_use_the_headers_if_these_do(inner: Serde, uses_headers: bool) -> None:
    assert inner.uses_headers is uses_headers
    assert Serdes.list(inner).uses_headers is uses_headers
    assert WindowedSerdes.time_windowed(inner, 10).uses_headers is uses_headers


class Upper(Serde[str]):
    """A user's serde, with the two methods that it needs."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return f"{topic}{value}".upper().encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return data.decode().lower()


def test_two_methods_are_a_serde_of_which_nothing_else_is_known() -> None:
    serde = Upper()
    assert serde.serialize_column("t", ["a", None]) == [b"TA", None]
    entries, places = serde.serialize_distinct("t", ["a", None, "A", "a"])
    assert (entries, places.tolist()) == ([b"TA", None], [0, 1, 0, 0])
    assert serde.deserialize_column("t", [None, b"TA"], [(), ()]) == [None, "ta"]
    assert not serde.is_readable_column([b"TA"])
    assert serde.with_defaults(Serdes.long(), Serdes.long()) is serde


def test_a_column_has_as_many_headers_as_rows() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Upper().serialize_column("t", ["a", "b"], [()])
    with pytest.raises(ValueError, match="shorter"):
        Upper().deserialize_column("t", [b"A", b"B"], [()])


class OnlyReads(StringSerde):
    """Overrides one of the two methods."""

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return data.decode()[::-1]


def test_what_depends_on_the_other_method_stays() -> None:
    serde = OnlyReads()
    assert serde.deserialize_column("t", [b"ab"]) == ["ba"]
    assert vars(OnlyReads).keys().isdisjoint(("serialize_column", "serialize_distinct"))
    assert not serde.is_canonical_column([b"ab"])


def test_a_default_replaces_a_missing_serde_and_those_within_another() -> None:
    text, number = Serdes.string(), Serdes.long()
    assert or_default(None, number, text, number) is number
    assert or_default(text, number, None, number) is text
    inner = or_default(ChangedSerde(None), None, None, number)
    assert isinstance(inner, ChangedSerde)
    assert not inner.uses_headers


@pytest.mark.parametrize("what", ["key", "value"])
def test_a_serde_that_is_missing_is_named_with_its_configuration(what: str) -> None:
    assert any_uses_headers(Serdes.string(), None), "it is not known yet"
    expected = f"a {what} serde or set one through StreamsConfig#DEFAULT_{what.upper()}_SERDE_CLASS_CONFIG$"
    with pytest.raises(ConfigError, match=expected):
        inner_serde(None, what)
