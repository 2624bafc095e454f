"""The common base of windowed aggregations: each operator has its own clock and its own store."""

from __future__ import annotations

import pytest

from penstock import SessionWindows, StreamsBuilder, TimeWindows
from penstock.errors import StreamsError
from penstock.plan.topology import Topology
from penstock.processor.reduction import counted, initial_count
from penstock.processor.windowed_aggregate import TimeWindowAggregate
from penstock.state.memory import MemoryBase
from tests.task.topologies import batch_of, output_of, sent, supplier, task_of

WINDOWS = TimeWindows.of_size_with_no_grace(10)


def counts(*values: str) -> Topology:
    """Return a count of windows for the records of each of `values`."""
    builder = StreamsBuilder()
    for value in values:
        records = builder.stream("in").filter(lambda k, v, value=value: v == value)
        table = records.group_by_key().windowed_by(WINDOWS).count(named=f"count-{value}")
        table.to_stream(lambda key, count: str(key)).map_values(str).to("out")
    return builder.build()


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_record_is_late_only_by_the_records_of_its_operator(execution: str) -> None:
    rows = [("a", "x", 5), ("a", "y", 100), ("a", "x", 6), ("a", "y", 7)]
    output = output_of(counts("x", "y"), rows, execution=execution)
    assert sorted(output) == [("[a@0/10]", "1", 5), ("[a@0/10]", "2", 6), ("[a@100/110]", "1", 100)]


def test_the_clock_of_an_operator_continues_after_a_restart() -> None:
    base = MemoryBase()
    task = task_of(counts("x", "y"), base=base)
    task.add_records("in", 0, batch_of(("a", "x", 5), ("a", "x", 12), ("a", "y", 100)))
    task.process()
    commit = task.prepare_commit()
    task.committed(commit.changes, b"1")
    again = task_of(counts("x", "y"), base=base, checkpoint=task.checkpoint())
    again.add_records("in", 0, batch_of(("a", "x", 6), ("a", "x", 13), first_offset=3))
    again.process()
    assert sent(again) == [("out", "[a@10/20]", "2", 13)]


def test_an_operator_without_its_store_is_refused() -> None:
    topology = Topology().add_source("S", "in")
    windowed = supplier(lambda: TimeWindowAggregate("W", "missing", WINDOWS, initial_count, counted))
    with pytest.raises(StreamsError) as caught:
        task_of(topology.add_processor("W", windowed, "S"))
    assert "missing" in f"{caught.value}{caught.value.__cause__}"


def test_a_window_starts_with_the_initial_aggregate_after_a_delete() -> None:
    builder = StreamsBuilder()
    for windows in (WINDOWS, SessionWindows.of_inactivity_gap_with_no_grace(5)):
        grouped = builder.stream("in").group_by_key().windowed_by(windows)
        functions = [lambda: "=", lambda key, value, total: None if value == "!" else total + value]
        functions += [lambda key, one, other: other] if isinstance(windows, SessionWindows) else []
        grouped.aggregate(*functions).to_stream(lambda key, total: "k").to("out")
    rows = [("a", value, 3) for value in "xy!z"]
    assert [value for _, value, _ in output_of(builder.build(), rows, execution="record")] == [
        value for value in ("=x", "=xy", None, "=z") for _ in range(2)
    ]
