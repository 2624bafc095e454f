"""The generated names that users are told of who want only names of their own."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, replace

import pytest

from penstock import Backoff, Park
from penstock.dsl.park import parking
from penstock.plan import explicit_names
from penstock.plan import nodes as n
from penstock.plan.explicit_names import generated_names
from penstock.processor.suppress import SuppressConstraints
from tests.plan.nodes.families import members
from tests.plan.plans import repartition, store, stream, table

GENERATED = "KSTREAM-AGGREGATE-STATE-STORE-0000000002"


def told(node: n.GraphNode) -> str:
    return generated_names({0: stream("in"), 1: node})


NAMED_BY_USERS = {
    n.AddStateStoreNode,
    n.ForeignKeySubscriptionNode,  # after the join
    n.ForeignTableJoinNode,
    n.StreamJoinWindowNode,  # by its join
    n.TableFilterNode,  # only with a name in Materialized
    n.TableMapValuesNode,
    n.TableTransformValuesNode,
}
"""Nodes whose stores are not named here, since their names are never generated, or those of another node."""


def test_each_node_with_a_store_is_known() -> None:
    with_store = {kind for kind in members(n.GraphNode) if "store" in {each.name for each in fields(kind)}}
    known = set(re.findall(r"\bn\.(\w+)\(", inspect.getsource(explicit_names)))
    missing = {kind.__name__ for kind in with_store - NAMED_BY_USERS} - known
    assert missing == set(), "add a case to plan/explicit_names.py, or the node to NAMED_BY_USERS"


def test_a_program_without_stores_and_topics_has_no_names_to_tell() -> None:
    assert generated_names({}) == generated_names({0: stream("in")}) == ""


@pytest.mark.parametrize("name", ["counts", "KSTREAM-AGGREGATE-STATE-STORE-2"])
def test_names_of_the_users_own_are_not_told(name: str) -> None:
    assert told(n.CountNode(name="count", store=store(name))) == ""
    assert told(repartition(name)) == ""


def test_a_store_is_told_with_its_changelog_if_it_has_one() -> None:
    line = f"Following state store(s) has not been named: {GENERATED}\n"
    changelog = f"Following changelog topic(s) has not been named: {GENERATED}-changelog\n"
    assert told(n.CountNode(name="count", store=store(GENERATED))) == changelog + line
    assert told(n.CountNode(name="count", store=store(GENERATED, logging=False))) == line
    assert told(table("t", store=store(GENERATED))) == changelog + line


def test_the_store_of_a_deduplication_is_told() -> None:
    node = n.DeduplicateNode(name="unique", store=store(GENERATED), interval_ms=5, mapper=None)
    assert f"Following state store(s) has not been named: {GENERATED}\n" in told(node)
    assert told(replace(node, store=store("seen"))) == ""


def test_a_suppression_has_a_changelog_of_its_own_and_no_store_of_the_user() -> None:
    node = n.TableSuppressNode(name="s", store=store(GENERATED), constraints=SuppressConstraints(5, False, 1, 1, False))
    assert told(node) == f"Following changelog topic(s) has not been named: {GENERATED}-changelog\n"


def test_the_store_of_parked_records_is_told_if_its_operator_has_no_name() -> None:
    park = Park(backoff=Backoff(1_000), attempts=3)
    node = n.PeekNode(name="peek", action=print, parking=parking(park, "KSTREAM-PEEK-0000000002", None, None))
    assert "state store(s) has not been named: KSTREAM-PEEK-0000000002-parked\n" in told(node)
    assert told(replace(node, parking=parking(park, "charge", None, None))) == ""


def test_names_come_once_in_the_order_of_the_program() -> None:
    later, earlier = "KSTREAM-MAP-0000000009", "KSTREAM-MAP-0000000003"
    plan: n.Plan = {5: repartition(later), 3: repartition(earlier), 7: repartition(later)}
    assert generated_names(plan) == (
        f"Following repartition topic(s) has not been named: {earlier}-repartition, {later}-repartition\n"
    )
