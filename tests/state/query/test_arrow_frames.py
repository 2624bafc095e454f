"""Frames as batches of Arrow, and times of their columns in ms."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock.state.query.arrow_frames import reader_of, times_of


class OfInterchange:
    """A frame that knows only the DataFrame interchange protocol."""

    def __init__(self, frame: pa.Table) -> None:
        self._frame = frame

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return self._frame.__dataframe__(nan_as_null, allow_copy)


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame, lambda rows: OfInterchange(pa.table(rows))])
def test_a_frame_of_each_library_is_read(make: Any) -> None:
    assert reader_of(make({"a": [1, 2]}), "").read_all().to_pydict() == {"a": [1, 2]}


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(TypeError, match=r"got list\. Call collect\(\) on a lazy frame; make a table\."):
        reader_of([1], "make a table")


@pytest.mark.parametrize(
    ("given", "type", "expected"),
    [
        ([5, None], pa.int32(), [5, None]),
        ([5.0, None], pa.float64(), [5, None]),
        ([None], pa.null(), [None]),
        ([-1, 2], pa.timestamp("s"), [-1_000, 2_000]),
        ([-1, 2], pa.timestamp("ms", "UTC"), [-1, 2]),
        ([-1, 1_999, None], pa.timestamp("us"), [-1, 1, None]),
        ([-1, 1_999_999], pa.timestamp("ns", "America/Lima"), [-1, 1]),
    ],
)
def test_times_are_ms_rounded_down(given: list[Any], type: pa.DataType, expected: list[int | None]) -> None:
    assert times_of("at", pa.array(given, type)) == expected


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="'at' of timestamps has the type date32"):
        times_of("at", pa.array([1], pa.date32()))
    with pytest.raises(ValueError, match="'at' of timestamps: expected whole ms"):
        times_of("at", pa.array([0.5]))
