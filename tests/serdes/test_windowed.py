"""The bytes of windowed keys: the key, then the window in fixed size."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.calendar_windows import CalendarWindows
from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes import Serdes
from penstock.serdes.windowed import WindowedSerdes
from penstock.windows import LONG_MAX, SessionWindow, TimeWindow, TimeWindows, Windowed
from tests.serdes.test_api import LoudSerde

TIMES = st.integers(0, 2**40)
KEYS = st.none() | st.builds(Windowed, st.text(max_size=2), st.builds(SessionWindow, TIMES, st.just(2**41)))


def test_windowed_keys_hand_the_headers_to_the_serde_of_the_key() -> None:
    serde = WindowedSerdes.time_windowed(LoudSerde(), 10)
    keys = [Windowed("a", TimeWindow(0, 10)), Windowed("b", TimeWindow(10, 20))]
    headers: list[Headers] = [(), (("h", b"1"),)]
    column = serde.serialize_column("t", keys, headers)
    assert column == [serde.serialize("t", key, own) for key, own in zip(keys, headers, strict=True)]
    assert [key.key for key in serde.deserialize_column("t", column, headers)] == ["a!0?0", "b!1?1"]


def test_keys_are_laid_out_as_in_kafka() -> None:
    text = Serdes.string()
    start, end = bytes(7) + b"\5", bytes(7) + b"\7"
    assert WindowedSerdes.time_windowed(text, 10).serialize("t", Windowed("k", TimeWindow(5, 15))) == b"k" + start
    session = WindowedSerdes.session_windowed(text)
    assert session.serialize("t", Windowed("k", SessionWindow(5, 7))) == b"k" + end + start


def test_a_time_window_ends_after_the_size_that_its_reader_knows() -> None:
    data = b"k" + bytes(7) + b"\5"
    assert WindowedSerdes.time_windowed(Serdes.string(), 10).deserialize("t", data).window == TimeWindow(5, 15)
    assert WindowedSerdes.time_windowed(Serdes.string()).deserialize("t", data).window == TimeWindow(5, LONG_MAX)


@given(st.lists(KEYS, max_size=6))
def test_a_column_is_written_and_read_as_its_rows(column: list[Windowed | None]) -> None:
    serde = WindowedSerdes.session_windowed(Serdes.string())
    written = serde.serialize_column("t", column)
    assert written == [None if key is None else serde.serialize("t", key) for key in column]
    assert serde.deserialize_column("t", written) == column


@pytest.mark.parametrize(
    ("serde", "least"),
    [
        (WindowedSerdes.time_windowed(Serdes.string(), 10), 8),
        (WindowedSerdes.session_windowed(Serdes.string()), 16),
    ],
)
def test_bytes_shorter_than_a_window_are_refused_unless_empty(serde: Any, least: int) -> None:
    assert serde.deserialize("t", b"") is None
    assert serde.deserialize("t", bytes(least)).key == ""
    for read in (serde.deserialize, lambda topic, data: serde.deserialize_column(topic, [data])):
        with pytest.raises(SerializationError, match=f"from 't': a windowed key has at least {least} bytes"):
            read("t", bytes(least - 1))


def test_windows_of_another_class_are_refused_when_the_serde_is_made() -> None:
    days = CalendarWindows.days("UTC", 0)
    minutes: Any = TimeWindows.of_size_with_no_grace(timedelta(minutes=5))
    with pytest.raises(TypeError, match=r"Expected CalendarWindows, got TimeWindows.*WindowedSerdes.time_windowed"):
        WindowedSerdes.calendar_windowed(Serdes.string(), minutes)
    with pytest.raises(TypeError, match="Expected window_size_ms as a timedelta or a whole number of milliseconds"):
        WindowedSerdes.time_windowed(Serdes.string(), days)  # type: ignore[arg-type]  # the error
    assert WindowedSerdes.time_windowed(Serdes.string(), timedelta(minutes=5)).window_size_ms == minutes.size_ms


def test_a_key_without_a_window_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a Windowed, got str 'k'; name another serde or convert the key"):
        WindowedSerdes.time_windowed(Serdes.string(), 10).serialize("t", "k")


def test_defaults_reach_the_serde_of_the_key() -> None:
    class Missing(LoudSerde):
        def with_defaults(self, key_serde: Any, value_serde: Any) -> Any:
            return key_serde

    serde = WindowedSerdes.time_windowed(Missing(), 10)
    resolved: Any = serde.with_defaults(Serdes.string(), None)
    assert (type(resolved), resolved.window_size_ms) == (type(serde), 10)
    assert resolved.serialize("t", Windowed("k", TimeWindow(0, 10))) == b"k" + bytes(8)
    assert resolved.with_defaults(Serdes.string(), None) is resolved
