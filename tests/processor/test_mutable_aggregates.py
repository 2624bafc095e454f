"""Functions that change the aggregate they are given, as in Java: each update is as if the store had kept bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock import (
    KGroupedStream,
    KTable,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
)
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch
from penstock.state.memory import MemoryBase
from penstock.task.stream_task import StreamTask

LISTS = Materialized.with_(key_serde=Serdes.string(), value_serde=Serdes.json())
TIMES = [20, 21, 25, 23, 40, 30]


def appended(key: str, value: str, aggregate: list[str]) -> list[str]:
    aggregate.append(value)
    return aggregate


PROGRAMS: dict[str, Callable[[KGroupedStream], KTable]] = {
    "keys": lambda grouped: grouped.aggregate(list, appended, LISTS),
    "hopping": lambda grouped: grouped.windowed_by(TimeWindows.of_size_and_grace(10, 100).advance_by(5)).aggregate(
        list, appended, LISTS
    ),
    "sliding": lambda grouped: grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(5, 100)).aggregate(
        list, appended, LISTS
    ),
    "sessions": lambda grouped: grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(3, 100)).aggregate(
        list, appended, lambda key, one, other: one + other, LISTS
    ),
}


def output(program: str, execution: str, cache_bytes: int) -> list[tuple[Any, Any, int]]:
    builder = StreamsBuilder()
    table = PROGRAMS[program](builder.stream("in").group_by_key())
    table.to_stream(lambda key, value: str(key)).to("out", Produced.with_(value_serde=Serdes.json()))
    config = StreamsConfig(
        {
            "application.id": "app",
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            "statestore.cache.max.bytes": cache_bytes,
            "penstock.execution": execution,
        }
    )
    (part,) = builder.build().build("app").subtopologies
    task = StreamTask(part, TaskId(0, 0), config, MemoryBase(), {"out": 1})
    task.initialize()
    values = [str(number).encode() for number in range(len(TIMES))]
    offsets = np.arange(len(TIMES), dtype=np.int64)
    task.add_records("in", 0, RecordBatch([b"a"] * len(TIMES), list(values), np.array(TIMES, np.int64), offsets))
    task.process()
    task.flush()
    batches = [sent.batch for sent in task.prepare_commit().output]
    return [row for b in batches for row in zip(b.keys, b.values, b.timestamps.tolist(), strict=True)]


@pytest.mark.parametrize("cache_bytes", [0, 10_000_000], ids=["uncached", "cached"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_columns_and_records_give_the_same(program: str, cache_bytes: int) -> None:
    result = output(program, "auto", cache_bytes)
    assert result == output(program, "record", cache_bytes)
    assert result


def test_what_was_forwarded_stays_as_it_was() -> None:
    values = [value for _, value, _ in output("keys", "auto", 0)]
    assert [len(Serdes.json().deserialize("out", value)) for value in values] == [1, 2, 3, 4, 5, 6]
