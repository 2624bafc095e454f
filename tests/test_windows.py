"""Windows: which times they hold, what cannot be, and the bytes of windowed keys."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    EmitStrategy,
    JoinWindows,
    Serdes,
    SessionWindow,
    SessionWindows,
    SlidingWindows,
    TimeWindow,
    TimeWindows,
    UnlimitedWindow,
    UnlimitedWindows,
    Windowed,
    WindowedSerdes,
)
from penstock.errors import SerializationError
from penstock.windows import LONG_MAX


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 10_000))
def test_the_windows_of_a_time_are_all_aligned_windows_that_hold_it(size: int, advance: int, time: int) -> None:
    windows = TimeWindows.of_size_with_no_grace(max(size, advance)).advance_by(advance)
    found = windows.windows_for(time)
    expected = [start for start in range(0, time + 1, windows.advance_ms) if start <= time < start + windows.size_ms]
    assert list(found) == expected
    assert [(w.start, w.end) for w in found.values()] == [(start, start + windows.size_ms) for start in expected]


def test_a_window_ends_with_the_largest_time_at_the_latest() -> None:
    windows = TimeWindows.of_size_with_no_grace(LONG_MAX)
    assert windows.windows_for(5) == {0: TimeWindow(0, LONG_MAX)}
    assert TimeWindow.of_size(10, LONG_MAX).end == LONG_MAX


def test_an_unlimited_window_holds_all_times_from_its_start_on() -> None:
    windows = UnlimitedWindows.of().start_on(10)
    assert windows.windows_for(9) == {}
    assert windows.windows_for(10) == {10: UnlimitedWindow(10)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeWindows.of_size_with_no_grace(0), "Window size (sizeMs) must be larger than zero."),
        (lambda: TimeWindows.of_size_and_grace(5, -1), "Grace period must not be negative."),
        (
            lambda: TimeWindows.of_size_with_no_grace(10).advance_by(11),
            (
                "Window advancement interval should be more than zero and less than window duration which is 10 ms, "
                "but given advancement interval is: 11 ms"
            ),
        ),
        (lambda: SlidingWindows.of_time_difference_with_no_grace(-1), "Window time difference must not be negative."),
        (lambda: SlidingWindows.of_time_difference_and_grace(1, -1), "Window grace period must not be negative."),
        (lambda: SessionWindows.of_inactivity_gap_with_no_grace(-1), "Gap time cannot be negative."),
        (lambda: SessionWindows.of_inactivity_gap_and_grace(1, -1), "Grace period cannot be negative."),
        (lambda: UnlimitedWindows.of().start_on(-1), "Window start time (startMs) cannot be negative."),
        (
            lambda: JoinWindows.of_time_difference_with_no_grace(5).before(-6),
            "Window interval (ie, beforeMs+afterMs) must not be negative.",
        ),
        (lambda: JoinWindows.of_time_difference_and_grace(5, -1), "Grace period must not be negative."),
        (lambda: TimeWindow(-1, 5), "Window startMs time cannot be negative."),
        (lambda: SessionWindow(5, 4), "Window endMs time cannot be smaller than window startMs time."),
        (lambda: TimeWindow(5, 5), "Window endMs must be greater than window startMs."),
    ],
)
def test_what_cannot_be_is_refused_with_kafkas_words(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # the whole message is compared
        make()
    assert str(raised.value) == message


@pytest.mark.parametrize("size", [1.5, "10", True, None])
def test_times_are_whole_numbers_of_milliseconds(size: Any) -> None:
    with pytest.raises(TypeError, match="whole number of milliseconds"):
        TimeWindows.of_size_with_no_grace(size)


def test_windows_of_different_classes_are_never_equal_and_cannot_be_compared() -> None:
    assert TimeWindow(0, 5) == TimeWindow(0, 5) != SessionWindow(0, 5)
    with pytest.raises(ValueError, match="Cannot compare windows of different type"):
        TimeWindow(0, 5).overlap(SessionWindow(0, 5))


@given(*[st.integers(0, 20)] * 4)
def test_windows_overlap_where_they_have_a_time_in_common(a: int, b: int, c: int, d: int) -> None:
    (first, last), (other_first, other_last) = sorted((a, b)), sorted((c, d))
    common = set(range(first, last + 1)) & set(range(other_first, other_last + 1))
    assert SessionWindow(first, last).overlap(SessionWindow(other_first, other_last)) == bool(common)
    one, other = TimeWindow(first, last + 1), TimeWindow(other_first, other_last + 1)
    assert one.overlap(other) == bool(common)


def test_a_windowed_key_shows_as_in_kafka_and_can_be_sent_to_workers() -> None:
    key = Windowed("a", SessionWindow(3, 7))
    assert str(key) == "[a@3/7]"
    assert pickle.loads(pickle.dumps(key)) == key
    assert hash(key) == hash(Windowed("a", SessionWindow(3, 7)))


def test_strategies_are_named_by_functions_as_in_kafka() -> None:
    assert EmitStrategy.on_window_close() is EmitStrategy.ON_WINDOW_CLOSE
    assert EmitStrategy.on_window_update() is EmitStrategy.ON_WINDOW_UPDATE


# ---------------------------------------- serdes


def test_windowed_keys_have_the_bytes_of_kafka() -> None:
    time = WindowedSerdes.time_windowed(Serdes.string(), 10)
    session = WindowedSerdes.session_windowed(Serdes.string())
    assert time.serialize("t", Windowed("ab", TimeWindow(258, 268))) == b"ab" + bytes.fromhex("0000000000000102")
    assert session.serialize("t", Windowed("ab", SessionWindow(1, 258))) == b"ab" + bytes.fromhex(
        "0000000000000102" + "0000000000000001"
    )


def test_windows_read_without_a_size_have_no_end() -> None:
    serde = WindowedSerdes.time_windowed(Serdes.string())
    assert serde.deserialize("t", b"a" + bytes(7) + b"\5") == Windowed("a", TimeWindow(5, LONG_MAX))


KEYS = st.lists(st.none() | st.tuples(st.text(max_size=4), st.integers(0, 9), st.integers(0, 9)), max_size=20)


@given(KEYS)
def test_columns_of_windowed_keys_equal_keys_one_by_one(rows: list[tuple[str, int, int] | None]) -> None:
    for serde, make in (
        (WindowedSerdes.time_windowed(Serdes.string(), 10), lambda start, _: TimeWindow(start, start + 10)),
        (WindowedSerdes.session_windowed(Serdes.string()), lambda start, more: SessionWindow(start, start + more)),
    ):
        keys = [None if row is None else Windowed(row[0], make(*row[1:])) for row in rows]
        data = serde.serialize_column("t", keys)
        assert data == [None if key is None else serde.serialize("t", key) for key in keys]
        assert serde.deserialize_column("t", data) == keys


def test_what_is_no_windowed_key_is_refused() -> None:
    serde = WindowedSerdes.session_windowed(Serdes.string())
    with pytest.raises(TypeError, match="expected a Windowed, got str 'a'"):
        serde.serialize("t", "a")
    with pytest.raises(SerializationError, match="at least 16 bytes"):
        serde.deserialize("t", b"short")


def test_no_bytes_are_no_windowed_key() -> None:
    serde = WindowedSerdes.session_windowed(Serdes.string())
    assert serde.deserialize("t", b"") is None
    assert serde.deserialize_column("t", [b"", None]) == [None, None]
