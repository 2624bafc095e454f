"""The nodes whose updates carry versions."""

from __future__ import annotations

import pytest

from penstock.plan import nodes as n
from penstock.plan.versions import is_versioned_store, may_be_versioned, own_versions
from penstock.processor.suppress import SuppressConstraints
from tests.plan.plans import keep, store, table, versioned_store

WAITING = SuppressConstraints(5, False, 1, 1, False)


def filtered(versioned: bool | None) -> n.TableFilterNode:
    return n.TableFilterNode(name="filter", predicate=lambda k, v: True, negate=False, versioned=versioned)


@pytest.mark.parametrize(("found", "expected"), [(None, False), (store(), False), (versioned_store(), True)])
def test_a_store_has_versions_by_its_kind(found: object, expected: bool) -> None:
    assert is_versioned_store(found) == expected  # type: ignore[arg-type]  # a store or None


CASES: list[tuple[n.GraphNode, bool | None]] = [
    (table("t"), False),
    (table("t", store=versioned_store()), True),
    (n.CountNode(name="count", store=versioned_store()), True),
    (n.TableSuppressNode(name="suppress", store=versioned_store(), constraints=WAITING), False),
    (filtered(None), None),
    (filtered(False), False),
    (filtered(True), True),
    (keep(0), None),
    (n.TableGroupByNode(name="group", mapper=lambda k, v: (k, v)), None),
]


@pytest.mark.parametrize(("node", "expected"), CASES)
def test_a_node_has_versions_by_its_store_or_options_or_parents(node: n.GraphNode, expected: bool | None) -> None:
    assert own_versions(node) is expected
    assert may_be_versioned(node) is (expected is not False)
