"""Stores and internal topics with generated names, for users who want only explicit names (KIP-1111).

A generated name changes when an operator is inserted before it, and its state is lost.

Rule: the names are those of the program before its optimisation. The store of a table counts even if it proves
unnecessary. The topics and the subscription store of a foreign-key join do not count, since they are named after the
join.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.plan import nodes as n
from penstock.plan.internal_topics import ANSWERS_SUFFIX
from penstock.state.api import StoreBuilder
from penstock.topic_names import CHANGELOG_SUFFIX

_GENERATED_STORE = re.compile(r".*STATE-STORE-[0-9]{10}")
_GENERATED_BUFFER = re.compile(r".*-[0-9]{10}-Buffer")
_GENERATED_PARK = re.compile(r".*-[0-9]{10}-parked")
_GENERATED_CALLS = re.compile(r".*-[0-9]{10}")
_GENERATED_TOPIC = re.compile(r".*-[0-9]{10}-repartition")
_NAMED_JOIN_STORE = "-this-join-store"


@dataclass
class _Unnamed:
    """The names found so far, without duplicates, in the order of the program."""

    changelogs: dict[str, None] = field(default_factory=dict)
    stores: dict[str, None] = field(default_factory=dict)
    repartition_topics: dict[str, None] = field(default_factory=dict)
    answers_topics: dict[str, None] = field(default_factory=dict)

    def add_stores(self, stores: Iterable[StoreBuilder]) -> None:
        for store in stores:
            self.stores[store.name] = None
            self.add_changelog(store)

    def add_changelog(self, store: StoreBuilder) -> None:
        if store.logging:
            self.changelogs[store.name + CHANGELOG_SUFFIX] = None

    def add(self, node: n.GraphNode) -> None:
        match node:
            case n.StreamStreamJoinNode(this_store=this_store, other_store=other_store, outer_store=outer_store):
                if not this_store.name.endswith(_NAMED_JOIN_STORE):
                    self.add_stores(store for store in (this_store, other_store, outer_store) if store is not None)
            case n.StreamTableJoinNode(buffer=StoreBuilder() as buffer) if _GENERATED_BUFFER.fullmatch(buffer.name):
                self.add_stores([buffer])
            case n.GlobalSourceNode(store=store) if _GENERATED_STORE.fullmatch(store.name):
                self.stores[store.name] = None
            case n.TableSuppressNode(store=store) if _GENERATED_STORE.fullmatch(store.name):
                self.add_changelog(store)
            case n.RepartitionNode(names=names) if _GENERATED_TOPIC.fullmatch(names.topic):
                self.repartition_topics[names.topic] = None
            case (
                n.CountNode(store=store)
                | n.ReduceNode(store=store)
                | n.AggregateNode(store=store)
                | n.TimeWindowedCountNode(store=store)
                | n.TimeWindowedAggregateNode(store=store)
                | n.SlidingWindowedAggregateNode(store=store)
                | n.SessionWindowedAggregateNode(store=store)
                | n.CogroupMergeNode(store=store)
                | n.TableSourceNode(store=store)
                | n.StreamToTableNode(store=store)
                | n.DeduplicateNode(store=store)
                | n.TableCountNode(store=store)
                | n.TableReduceNode(store=store)
                | n.TableAggregateNode(store=store)
                | n.TableTableJoinNode(store=StoreBuilder() as store)
                | n.ForeignKeyJoinNode(store=store)
            ) if _GENERATED_STORE.fullmatch(store.name):
                self.add_stores([store])
            case (
                n.FunctionNode(calling=n.Calling(store=store), name=name)
                | n.ProcessNode(calling=n.Calling(store=store), name=name)
            ) if _GENERATED_CALLS.fullmatch(name):
                self.answers_topics[name + ANSWERS_SUFFIX] = None
                if store.name.startswith(name):
                    self.add_stores([store])
            case n.FunctionNode(parking=n.Parking(store=store)) if _GENERATED_PARK.fullmatch(store.name):
                self.add_stores([store])
            case _:
                pass  # no store or topic of its own, or one that the user always names


def generated_names(plan: n.Plan) -> str:
    """Return the list of generated names in `plan` as text, empty without any.

    The names are those of changelog topics, stores, repartition topics and answers topics. Kafka:
    InternalTopologyBuilder.checkUnprovidedNames.
    """
    unnamed = _Unnamed()
    for _, node in sorted(plan.items()):
        unnamed.add(node)
    found = {
        "changelog topic": unnamed.changelogs,
        "state store": unnamed.stores,
        "repartition topic": unnamed.repartition_topics,
        "answers topic": unnamed.answers_topics,
    }
    return "".join(
        f"Following {kind}(s) has not been named: {', '.join(names)}\n" for kind, names in found.items() if names
    )
