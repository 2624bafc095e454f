"""The nodes of joins."""

from __future__ import annotations

import dataclasses

from penstock.plan import nodes as n
from penstock.plan.nodes import join
from tests.plan.nodes.families import check_family
from tests.plan.plans import lookup


def test_the_family_is_complete() -> None:
    check_family(join, n.JoinNode)


def test_a_table_that_is_looked_up_is_no_parent() -> None:
    node = lookup(0, 1)
    assert (node.parents, node.table) == ((0,), 1)
    assert (node.buffer, node.grace_period_ms) == (None, None)


def test_names_of_a_foreign_key_join_are_all_given() -> None:
    fields = dataclasses.fields(n.ForeignKeyNames)
    assert all(field.default is dataclasses.MISSING and field.kw_only for field in fields)
    names = n.ForeignKeyNames(**{field.name: field.name for field in fields})
    assert len(set(dataclasses.asdict(names).values())) == len(fields)
