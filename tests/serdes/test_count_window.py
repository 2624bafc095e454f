"""Windows of n records: their bytes, the default of the aggregates, and bytes of other stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import CountWindow
from penstock.errors import ConfigError, SerializationError
from penstock.serdes import DoubleSerde, LongSerde, Serdes, StringSerde
from penstock.serdes.count_window import CountWindowSerde

TEXT = StringSerde()
WINDOWS = st.builds(CountWindow, st.integers(0, 2**63 - 1), st.booleans(), st.none() | st.text())


@given(WINDOWS)
def test_a_window_is_read_as_it_was_written(window: CountWindow[str]) -> None:
    serde = CountWindowSerde(TEXT)
    assert serde.deserialize("t", serde.serialize("t", window)) == window


def test_the_bytes_are_version_number_of_records_whether_full_and_the_aggregate() -> None:
    serde = CountWindowSerde(TEXT)
    assert serde.serialize("t", CountWindow(5, False, "ab")) == b"\1" + bytes(7) + b"\5\0\1ab"
    assert serde.serialize("t", CountWindow(5, True, None)) == b"\1" + bytes(7) + b"\5\1\0"


def test_the_default_of_values_replaces_a_missing_serde() -> None:
    window, serde = CountWindow(1, False, 5), CountWindowSerde(None)
    known = serde.with_defaults(TEXT, LongSerde())
    assert known.deserialize("t", known.serialize("t", window)) == window
    with pytest.raises(ConfigError, match="Please specify a value serde"):
        serde.serialize("t", window)


def test_headers_are_used_if_the_serde_of_the_aggregates_uses_them() -> None:
    with_headers = Serdes.serde_from(lambda topic, value, headers: value, lambda data: data)
    assert not CountWindowSerde(TEXT).uses_headers
    assert CountWindowSerde(with_headers).uses_headers


@pytest.mark.parametrize("data", [b"", DoubleSerde().serialize("t", 1.5), b"\2" + bytes(10)])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match=r"as a window of n records of version 1\. If the program had another"):
        CountWindowSerde(TEXT).deserialize("topic", data)


def test_another_value_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a CountWindow, got 'a'"):
        CountWindowSerde(TEXT).serialize("topic", "a")
