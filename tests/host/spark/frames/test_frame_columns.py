"""Which columns a DataFrame may have to become records; without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructField, StructType

from penstock.errors import StreamsError
from penstock.host.spark.frames.data_frames import columns


@pytest.mark.parametrize("type_", [LongType(), DoubleType()])
def test_timestamps_that_are_numbers_are_refused(type_: DataType) -> None:
    schema = StructType([StructField("value", StringType()), StructField("timestamp", type_)])
    frame: Any = SimpleNamespace(schema=schema)
    with pytest.raises(
        StreamsError, match=f"timestamps of the type {type_.simpleString()}, of which Spark would make seconds"
    ):
        columns(frame, "orders")
