"""The taps of a task: the last records that reach a node, in batches and one by one, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from penstock import Materialized, Processor, Produced, Record, Serdes, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology
from penstock.record import RecordBatch
from penstock.state.memory import MemoryBase
from penstock.task.stream_task import StreamTask

TEXT = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}


class Twice(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record)
        self.context.forward(record.with_value(record.value + "!"))


def topology() -> Topology:
    builder = StreamsBuilder()
    kept = builder.stream("in").filter(lambda key, value: value != "no", named="kept")
    kept.map_values(str.upper, named="upper").process(Twice, named="twice").to("out", Produced.as_("written"))
    builder.stream("keyed").group_by_key().count(Materialized.as_("counts"), named="counted")
    return builder.build()


def task(of: int, **config: object) -> StreamTask:
    built = topology().build("app")
    made = StreamTask(
        built.subtopologies[of],
        TaskId(of, 0),
        StreamsConfig({"application.id": "app", **TEXT, **config}),
        MemoryBase(),
        {"out": 1},
        wall_clock_ms=77,
    )
    made.initialize()
    return made


def batch(*values: str, first: int = 0) -> RecordBatch:
    count = len(values)
    return RecordBatch(
        [b"k"] * count,
        [value.encode() for value in values],
        np.arange(count, dtype=np.int64) + 1_000,
        np.arange(first, first + count, dtype=np.int64),
    )


@pytest.mark.parametrize("rows", [4, 60])
@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_a_tap_keeps_the_last_records_that_reach_a_node(rows: int, execution: str, level: str) -> None:
    config = {"penstock.execution": execution, "metrics.recording.level": level}
    tapped, plain = task(0, **config), task(0, **config)
    nodes = ("KSTREAM-SOURCE-0000000000", "kept", "upper", "twice", "written")
    for node in nodes:
        tapped.tap(node, 3)
    values = [f"v{number}" for number in range(rows - 1)] + ["no"]
    for each in (tapped, plain):
        each.add_records("in", 0, batch(*values))
        each.process()
    last = [f"v{number}" for number in range(rows - 4, rows - 1)]
    seen = {node: [record.value for record in tapped.tapped(node)] for node in nodes}
    assert seen["KSTREAM-SOURCE-0000000000"] == seen["kept"] == [*last[1:], "no"]
    assert seen["upper"] == last
    assert seen["twice"] == [value.upper() for value in last]
    assert seen["written"] == [f"{last[1].upper()}!", last[2].upper(), f"{last[2].upper()}!"]
    newest = tapped.tapped("written")[-1]
    assert newest[4:] == ("0_0", "in", 0, rows - 2, 77)
    assert (newest.key, newest.timestamp, newest.headers) == ("k", 1_000 + rows - 2, ())
    (out,), (expected,) = tapped.take_output(), plain.take_output()
    assert (list(out.batch.keys), list(out.batch.values)) == (list(expected.batch.keys), list(expected.batch.values))


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_a_closed_tap_leaves_the_task_as_it_was(level: str) -> None:
    each = task(0, **{"metrics.recording.level": level})
    node = each._topology.nodes["twice"]
    before = dict(vars(node))
    each.tap("twice", 2)
    each.tap("twice", 1)
    each.untap("twice")
    each.untap("twice")
    assert vars(node) == before
    each.add_records("in", 0, batch("a"))
    each.process()
    assert each.tapped("twice") == []


def test_a_task_ignores_taps_of_nodes_that_it_does_not_have() -> None:
    each = task(0)
    each.tap("counted", 2)
    assert each.tapped("counted") == []


def test_records_that_would_be_counted_as_bytes_are_objects_for_a_tap() -> None:
    each = task(1)
    values = [f"v{number}" for number in range(60)]
    each.add_records("keyed", 0, batch(*values))
    each.process()
    each.tap("counted", 2)
    each.add_records("keyed", 0, batch(*values, first=60))
    each.process()
    assert [(record.key, record.value) for record in each.tapped("counted")] == [("k", "v58"), ("k", "v59")]
    each.untap("counted")
    each.add_records("keyed", 0, batch(*values, first=120))
    each.process()
    assert each.store("counts").get("k").value == 180


def test_a_tap_of_a_source_has_records_that_take_turns() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"]).to("out")
    made = StreamTask(
        builder.build().build("app").subtopologies[0],
        TaskId(0, 0),
        StreamsConfig({"application.id": "app", **TEXT}),
        MemoryBase(),
        {"out": 1},
    )
    made.initialize()
    made.tap("KSTREAM-SOURCE-0000000000", 4)
    made.add_records("a", 0, batch("a1", "a2", "a3"))
    made.add_records("b", 0, batch("b1", "b2", "b3"))
    made.process()
    last = [(record.topic, record.value) for record in made.tapped("KSTREAM-SOURCE-0000000000")]
    assert last == [("a", "a2"), ("b", "b2"), ("a", "a3"), ("b", "b3")]
