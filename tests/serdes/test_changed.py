"""The bytes of table updates in repartition topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, StreamsError
from penstock.record import Change
from penstock.serdes import Serdes
from penstock.serdes.changed import ChangedSerde

SERDE = ChangedSerde(Serdes.string())
TEXTS = st.text(max_size=300)


def test_each_form_has_its_last_byte() -> None:
    assert SERDE.serialize("t", Change("new", None)) == b"new\x01"
    assert SERDE.serialize("t", Change(None, "old")) == b"old\x00"
    assert SERDE.serialize("t", Change("new", "old")) == b"\x06newold\x02"  # 3 as a zigzag varint is 6


@given(new=st.none() | TEXTS, old=st.none() | TEXTS)
def test_what_is_written_is_read(new: str | None, old: str | None) -> None:
    if new is None and old is None:
        with pytest.raises(StreamsError, match="Both old and new values are null"):
            SERDE.serialize("t", Change(new, old))
    else:
        assert SERDE.deserialize("t", SERDE.serialize("t", Change(new, old))) == Change(new, old)


@pytest.mark.parametrize("is_latest", [True, False])
def test_forms_with_a_flag_for_the_latest_are_read(is_latest: bool) -> None:
    flag = bytes([is_latest])
    assert SERDE.deserialize("t", b"old" + flag + b"\x03") == Change(None, "old", is_latest)
    assert SERDE.deserialize("t", b"new" + flag + b"\x04") == Change("new", None, is_latest)
    assert SERDE.deserialize("t", b"\x06newold" + flag + b"\x05") == Change("new", "old", is_latest)


def test_other_last_bytes_mean_nothing() -> None:
    with pytest.raises(StreamsError, match="unknown byte value `6`"):
        SERDE.deserialize("t", b"x\x06")


def test_the_values_have_the_default_serde_if_they_were_given_none() -> None:
    serde = ChangedSerde(None).with_defaults(None, Serdes.long())
    assert serde.deserialize("t", serde.serialize("t", Change(1, None))) == Change(1, None)
    with pytest.raises(ConfigError, match="Please specify a value serde"):
        ChangedSerde(None).with_defaults(None, None)
