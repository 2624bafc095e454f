"""Keys with their ids: their bytes, and the serdes within."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.serdes import LongSerde, Serdes, StringSerde
from penstock.serdes.key_and_id import KeyAndIdSerde

TEXT = StringSerde()


@given(st.text(), st.text())
def test_a_pair_is_read_as_it_was_written(key: str, id: str) -> None:
    serde = KeyAndIdSerde(TEXT, TEXT)
    assert serde.deserialize("t", serde.serialize("t", (key, id))) == (key, id)


def test_the_size_of_the_key_keeps_key_and_id_apart() -> None:
    serde = KeyAndIdSerde(TEXT, LongSerde())
    assert serde.serialize("t", ("ab", 5)) == b"\0\0\0\2ab" + bytes(7) + b"\5"


def test_the_default_of_keys_replaces_a_missing_serde() -> None:
    serde = KeyAndIdSerde(None, TEXT)
    assert serde.with_defaults(LongSerde(), TEXT).serialize("t", (5, "x")) == b"\0\0\0\10" + bytes(7) + b"\5x"
    with pytest.raises(ConfigError, match="Please specify a key serde"):
        serde.serialize("t", (5, "x"))


def test_headers_are_used_if_one_of_the_serdes_uses_them() -> None:
    with_headers = Serdes.serde_from(lambda topic, value, headers: value, lambda data: data)
    assert not KeyAndIdSerde(TEXT, TEXT).uses_headers
    assert KeyAndIdSerde(with_headers, TEXT).uses_headers
    assert KeyAndIdSerde(TEXT, with_headers).uses_headers
