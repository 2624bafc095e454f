"""The plans of a task: of each source, and of the sources of a join together."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.task.plans import Plans
from penstock.task.processor_topology import SourceNode
from tests.task.test_join_nodes import two_streams
from tests.task.topologies import nodes_of


def plans(uses_headers: bool = False, column_by_column: bool = True) -> tuple[Plans, list[SourceNode]]:
    nodes = nodes_of(two_streams())
    stores: Any = defaultdict(lambda: SimpleNamespace(uses_headers=uses_headers))
    return Plans(nodes.topology, nodes.errors, stores, column_by_column), nodes.topology.sources


def test_the_sources_of_a_join_have_a_plan_together_in_which_the_join_is_one_step() -> None:
    found, sources = plans()
    together = found.of(sources)
    assert list(together.entries) == sources
    (join,) = together.joins
    assert list(together.steps)[:-1] == [join]
    assert not together.record_sections
    assert found.of(sources[::-1]) is together


def test_records_with_headers_that_a_store_may_use_have_a_plan_without_the_join() -> None:
    found, sources = plans(uses_headers=True)
    assert found.of(sources).joins
    assert not found.of(sources, with_headers=True).joins
    assert found.of(sources, with_headers=True).record_sections


@pytest.mark.parametrize("number", [0, 1])
def test_without_columns_each_source_is_a_record_section(number: int) -> None:
    found, sources = plans(column_by_column=False)
    plan = found.of(sources[number : number + 1])
    assert plan.record_sections
    assert not plan.nodes
