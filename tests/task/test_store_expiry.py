"""Sweeps of a task: when they run, and where they continue."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
    TtlClock,
    ValueAndTimestamp,
)
from penstock.errors import StreamsError
from penstock.processor.api import PunctuationType
from penstock.state import expiry
from penstock.state.memory import MemoryBase
from penstock.task.punctuation import EpochSchedules
from penstock.task.task_checkpoint import TaskCheckpoint
from tests.task.topologies import STRING, batch_of, task_of


class Put(Processor):
    """Puts each record into its store."""

    def init(self, context: ProcessorContext) -> None:
        self.store: Any = context.get_state_store("s")

    def process(self, record: Record[Any, Any]) -> None:
        self.store.put(record.key, ValueAndTimestamp(record.value, record.timestamp))


def put_topology(clock: TtlClock) -> Topology:
    store = Stores.timestamped_key_value_store_builder(Stores.in_memory_key_value_store("s"), STRING, STRING)
    topology = Topology()
    topology.add_source("source", "in").add_processor("put", Put, "source")
    return topology.add_state_store(store.with_ttl(20_000, clock=clock), "put")


def stored(base: MemoryBase) -> dict[bytes, int]:
    return {key: int.from_bytes(value[:8], "big") for key, value in base.view("s").range(None, None, False)}


def run_epoch(
    topology: Topology, base: MemoryBase, data: bytes | None, rows: list[tuple[str, int]], first: int
) -> bytes:
    """Run one epoch on `rows` of key and time, as a task of its own; return its checkpoint."""
    checkpoint = None if data is None else TaskCheckpoint.decode(data)
    schedules = EpochSchedules(() if checkpoint is None else checkpoint.schedules)
    task = task_of(topology, base=base, checkpoint=checkpoint, schedules=schedules)
    task.add_records("in", 0, batch_of(*((key, "x", time) for key, time in rows), first_offset=first))
    task.process()
    commit = task.prepare_commit()
    task.committed(commit.changes, b"%d" % first)
    return commit.checkpoint.encode()


def test_epochs_continue_the_sweep_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "ENTRIES_PER_SWEEP", 2)
    topology, base = put_topology(TtlClock.STREAM_TIME), MemoryBase()
    checkpoint = run_epoch(topology, base, None, [(key, 0) for key in "abcdefgh"], 0)
    left = []
    for number in range(6):
        checkpoint = run_epoch(topology, base, checkpoint, [("z", 40_000 + 2_000 * number)], 8 + number)
        left.append("".join(key.decode() for key in stored(base)))
    assert TaskCheckpoint.decode(checkpoint).sweep_cursors == {}
    assert left[0] == "z"  # the sweep after eight writes looks at all
    filled = run_epoch(topology, base, checkpoint, [(key, 60_000) for key in "abcdefgh"], 20)
    left, checkpoint = [], run_epoch(topology, base, filled, [("z", 62_000)], 28)
    for number in range(5):
        checkpoint = run_epoch(topology, base, checkpoint, [("z", 80_000 + 2_000 * number)], 29 + number)
        left.append("".join(key.decode() for key in stored(base)))
    assert left == ["cdefghz", "efghz", "ghz", "z", "z"]


def test_sweeps_by_the_wall_clock_need_no_records() -> None:
    base = MemoryBase()
    task = task_of(put_topology(TtlClock.WALL_CLOCK_TIME), base=base)
    task.add_records("in", 0, batch_of(("a", "x", 0), ("b", "x", 5_000)))
    task.process()
    assert task.next_wall_clock_ms() == 2_000
    store: Any = task.store("s")
    task.advance_wall_clock(19_999)
    assert [key for key, _ in store.all()] == ["a", "b"]
    task.advance_wall_clock(20_000)
    assert [key for key, _ in store.all()] == ["b"]
    assert task.changes()["s"][b"a"] is None
    assert task.next_wall_clock_ms() == 22_000


@pytest.mark.parametrize(
    ("clock", "type", "next_ms"),
    [
        (TtlClock.STREAM_TIME, PunctuationType.STREAM_TIME, None),
        (TtlClock.WALL_CLOCK_TIME, PunctuationType.WALL_CLOCK_TIME, 2_000),
    ],
)
def test_a_commit_has_the_schedule_of_each_store(clock: TtlClock, type: PunctuationType, next_ms: int | None) -> None:
    checkpoint = task_of(put_topology(clock), schedules=EpochSchedules(())).checkpoint()
    (schedule,) = checkpoint.schedules
    assert (schedule.node, schedule.type) == ("s/ttl", type)
    assert checkpoint.next_wall_clock_ms() == next_ms


def test_the_error_of_a_function_below_names_the_store_and_the_line() -> None:
    def fail(key: Any, value: Any) -> bool:
        if value is None:
            raise ValueError("no value")
        return True

    builder = StreamsBuilder()
    options = Materialized.as_("t").with_ttl(10).with_caching_disabled()
    builder.table("in", materialized=options).to_stream().filter(fail, named="fails").to("out")
    task = task_of(builder.build())
    task.add_records("in", 0, batch_of(("a", "x", 0), ("b", "x", 10)))
    with pytest.raises(StreamsError, match="Exception caught while punctuating processor 't/ttl'") as raised:
        task.process()
    assert "in fail: raise ValueError" in "".join(raised.value.__notes__)
