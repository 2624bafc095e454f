"""Functions on columns on each host: the output of functions on rows, without the records at fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import Consumed, Produced, Serdes, StreamsBuilder, Topology, vectorized
from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler
from tests.host.support import InputRecord, Program, Runner

pytestmark = [pytest.mark.one_broker]

STRING, DOUBLE = Serdes.string(), Serdes.double()
BEGAN = 1_700_000_000_000
ROWS = 200
CONTINUE = {
    "processing.exception.handler": LogAndContinueProcessingExceptionHandler,
    "commit.interval.ms": 0,
}


def halves(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if np.any(values == 13):
        raise ValueError("an unlucky value")
    return values / 2


def positive(keys: pa.StringArray, values: pa.DoubleArray) -> pa.BooleanArray:
    return pc.greater(values, 0)


@vectorized
def swapped(keys: list[str], values: list[float]) -> list[str]:
    return [f"{key}-{value}" for key, value in zip(keys, values, strict=True)]


def numbers(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed.with_(STRING, DOUBLE)).map_values(halves)
    stream.filter(positive).select_key(swapped).to(target, Produced.with_(STRING, DOUBLE))
    return builder.build()


@pytest.mark.partitions(1, 1)
def test_columns_give_the_output_of_rows_on_each_host(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    headers = (("n", b"1"),)
    runner.write(
        topics[0],
        [
            InputRecord(b"k%d" % row, DOUBLE.serialize("", float(row)), BEGAN + row, headers=headers)
            for row in range(ROWS)
        ],
    )
    program = start(numbers(*topics), runner.config(application, CONTINUE))
    program.run_to_end()
    assert [(each.key, each.value, each.timestamp, each.headers) for each in runner.read(topics[1])] == [
        (f"k{row}-{row / 2}".encode(), DOUBLE.serialize("", row / 2), BEGAN + row, headers)
        for row in range(1, ROWS)
        if row != 13
    ]
