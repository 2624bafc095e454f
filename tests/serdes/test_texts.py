"""Keys and values for people: as text and as JSON, and back to the same bytes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SerializationError
from penstock.serdes import Serdes
from penstock.serdes.texts import NULL, SerdeName, from_json, from_text, parsed, to_json, to_text

SIZES = {"short": 2, "integer": 4, "long": 8}
WHOLE = st.sampled_from(sorted(SIZES)).flatmap(
    lambda name: st.tuples(st.just(SerdeName(name)), st.binary(min_size=SIZES[name], max_size=SIZES[name]))
)
DATA = st.one_of(
    WHOLE,
    st.tuples(st.just(SerdeName.bytes), st.binary()),
    st.tuples(st.just(SerdeName.string), st.text(st.characters(codec="utf-8")).map(str.encode)),
    st.tuples(st.just(SerdeName.boolean), st.sampled_from([b"\0", b"\1"])),
    st.tuples(
        st.just(SerdeName.double), st.floats(allow_nan=False).map(lambda each: Serdes.double().serialize("", each))
    ),
    st.tuples(st.just(SerdeName.uuid), st.uuids().map(lambda each: str(each).encode())),
    st.tuples(st.just(SerdeName.json), st.sampled_from([b"null", b'"text"', b'{"a":[1,null]}', b"1.5"])),
)


@given(DATA)
def test_text_and_json_lead_back_to_the_same_bytes(of: tuple[SerdeName, bytes]) -> None:
    name, data = of
    assert from_text(name, "t", to_text(name, "t", data)) == data
    shown = to_json(name, "t", data)
    assert shown is None or from_json(name, "t", shown) == data


def test_null_is_no_value() -> None:
    assert to_text(SerdeName.long, "t", None) == NULL
    assert to_json(SerdeName.long, "t", None) is None
    assert from_json(SerdeName.long, "t", None) is None


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (SerdeName.bytes, b"\x0f", "0f"),
        (SerdeName.boolean, b"\1", True),
        (SerdeName.short, b"\0\5", 5),
        (SerdeName.double, Serdes.double().serialize("t", math.inf), "inf"),  # JSON has no such number
        (SerdeName.json, b'{"b":1}', {"b": 1}),
    ],
)
def test_json_keeps_what_it_has_and_shows_the_rest_as_text(name: SerdeName, data: bytes, expected: Any) -> None:
    assert to_json(name, "t", data) == expected


@pytest.mark.parametrize(
    ("name", "text"), [("bytes", "0"), ("long", "1.5"), ("uuid", "x"), ("json", "{"), ("boolean", "")]
)
def test_a_text_of_no_such_value_is_refused_with_its_topic(name: str, text: str) -> None:
    with pytest.raises(SerializationError, match=f"^Cannot write '.*' to 't' as {name}: "):
        from_text(SerdeName(name), "t", text)


def test_a_key_is_parsed_by_the_serde_that_writes_it() -> None:
    assert parsed(Serdes.long(), "store s", "7") == 7
    with pytest.raises(SerializationError, match="Cannot read 'x' as a long of store s: "):
        parsed(Serdes.long(), "store s", "x")
    with pytest.raises(
        SerializationError, match=r"written by ListSerde, which the command line cannot read.* string, "
    ):
        parsed(Serdes.list(Serdes.long()), "store s", "[7]")
