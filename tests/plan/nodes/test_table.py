"""The nodes of tables and global stores."""

from __future__ import annotations

from penstock.plan import nodes as n
from penstock.plan.nodes import table
from tests.plan.nodes.families import check_family
from tests.plan.plans import table as source


def test_the_families_are_complete() -> None:
    check_family(table, n.TableNode, n.GlobalNode)


def test_the_topic_of_a_table_is_its_changelog_only_after_an_optimisation() -> None:
    assert not source("t").reuse_topic


def test_a_derived_table_has_a_store_and_versions_only_if_it_says_so() -> None:
    filtered = n.TableFilterNode(name="filter", predicate=lambda key, value: True, negate=False)
    mapped = n.TableMapValuesNode(name="map", mapper=str, with_key=False)
    assert {(node.store, node.versioned) for node in (filtered, mapped)} == {(None, None)}
