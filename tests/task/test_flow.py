"""The positions of waiting rows: refined where rows are multiplied, cut at a failure, merged in their order."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.drop_reasons import Dropped, DropReason
from penstock.plan.topology import Topology
from penstock.processor.stateless import StreamMerge
from penstock.record import Int64Array
from penstock.task.column_plan import Entry
from penstock.task.flow import MAXIMUM_SCALE, Flow, Part, merged
from tests.task.topologies import batch_of, nodes_of, supplier


@pytest.fixture
def source() -> Entry:
    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("A", supplier(StreamMerge), "S")
    topology.add_processor("B", supplier(StreamMerge), "S")
    return nodes_of(topology).topology.sources[0]


def numbers(*values: int) -> Int64Array:
    return np.array(values, np.int64)


def part_of(source: Entry, *positions: int) -> Part:
    return Part(source, batch_of(*((f"k{position}", "v", 1) for position in positions)), numbers(*positions))


def held(flow: Flow, node: str) -> list[list[int]]:
    return [[] if part.positions is None else part.positions.tolist() for part in flow.waiting[node]]


def test_each_row_reaches_the_first_child_first(source: Entry) -> None:
    flow = Flow()
    flow.hold("other", part_of(source, 4))
    flow.deliver(source.children, part_of(source, 0, 2))
    assert (held(flow, "A"), held(flow, "B"), held(flow, "other")) == ([[0, 4]], [[1, 5]], [[8]])
    assert flow.scale == 2


def test_a_failure_cuts_the_rows_after_it_and_its_position_is_refined_too(source: Entry) -> None:
    flow = Flow(dropped=[(2, Counter({Dropped("A", DropReason.LATE): 1}))])
    flow.hold("A", part_of(source, 0, 2, 5))
    flow.cut(2)
    assert flow.refine(3)
    assert (held(flow, "A"), flow.failed_at, flow.dropped[0][0]) == ([[0]], 6, 6)


def test_rows_of_one_origin_are_consecutive() -> None:
    flow = Flow()
    assert flow.refined(numbers(3, 7), numbers(0, 0, 1)).tolist() == [6, 7, 14]
    assert flow.refined(numbers(6, 14), numbers(1)).tolist() == [14]


origins = st.lists(st.integers(0, 5), max_size=8).map(sorted)


@given(origins, origins)
def test_rows_of_both_kinds_are_in_the_order_of_their_origins_and_the_first_kind_comes_first(
    first: list[int], second: list[int]
) -> None:
    positions = np.arange(6, dtype=np.int64) * 2
    before, after = Flow().refined_both(positions, numbers(*first), numbers(*second))
    placed = [(place, origin, 0) for place, origin in zip(before.tolist(), first, strict=True)]
    placed += [(place, origin, 1) for place, origin in zip(after.tolist(), second, strict=True)]
    ordered = [each[1:] for each in sorted(placed)]
    assert ordered == sorted(ordered)
    assert len({place for place, _, _ in placed}) == len(placed)


def test_parts_are_merged_by_position(source: Entry) -> None:
    part = merged([part_of(source, 0, 5), part_of(source), part_of(source, 2)])
    assert part.positions is not None
    assert (part.batch.keys, part.positions.tolist()) == ([b"k0", b"k2", b"k5"], [0, 2, 5])


def test_rows_that_are_multiplied_too_often_are_refused(source: Entry) -> None:
    flow = Flow(scale=MAXIMUM_SCALE)
    with pytest.raises(OverflowError, match=r"penstock\.execution=record"):
        flow.deliver(source.children, part_of(source, 0))
