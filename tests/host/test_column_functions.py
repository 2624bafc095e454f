"""Functions on columns on each host: the output of functions on rows, without the records at fault, and models that a
process loads once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import Consumed, Produced, Serdes, StreamsBuilder, Topology, model, vectorized
from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler
from tests.host.support import WITH_A_SESSION, InputRecord, Program, Runner

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


def scored(source: str, target: str, loads: Path) -> Topology:
    @model(batch_size=16)
    def scores() -> Callable[[list[float]], list[float]]:
        with loads.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return lambda values: [value * 2 for value in values]

    builder = StreamsBuilder()
    builder.stream(source, Consumed.with_(STRING, DOUBLE)).map_values(scores).to(target, Produced.with_(STRING, DOUBLE))
    return builder.build()


@WITH_A_SESSION
@pytest.mark.partitions(2, 1)
def test_each_process_loads_a_model_once(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    program = start(scored(*topics, tmp_path / "loads"), runner.config(application, {"commit.interval.ms": 0}))
    for _ in range(2):
        runner.write(
            topics[0],
            [InputRecord(b"k", DOUBLE.serialize("", float(row)), BEGAN + row, partition=row % 2) for row in range(100)],
        )
        program.run_to_end()
    values = sorted(DOUBLE.deserialize("", each.value or b"") for each in runner.read(topics[1]))
    assert values == sorted(2 * [row * 2.0 for row in range(100)])
    processes = (tmp_path / "loads").read_text().split()
    assert len(processes) == len(set(processes))
