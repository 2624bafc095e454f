"""Arguments by position in the order of Java's methods of Topology."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    AutoOffsetReset,
    Consumed,
    Materialized,
    Processor,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    Topology,
)
from penstock.plan.subtopology import SinkSpec, SourceSpec

TEXT, LONG = Serdes.string(), Serdes.long()
PATTERN = re.compile("a.*")


def extractor(record: Any, partition_time: int) -> int:
    return 0


def partitioner(topic: str, key: Any, value: Any, count: int) -> set[int]:
    return {0}


class Pass(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record)


def nodes(topology: Topology) -> list[Any]:
    built = topology.build("app")
    tasks = [node for part in built.subtopologies for node in part.nodes]
    return tasks + list(built.global_topology.nodes if built.global_topology else ())


LATEST = AutoOffsetReset.latest()
SERDES = {"key_serde": TEXT, "value_serde": LONG}
SOURCES: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("s", "a", "b"), {"topics": ("a", "b")}),
    (("s", PATTERN), {"pattern": PATTERN}),
    ((LATEST, "s", "a"), {"topics": ("a",), "offset_reset": "latest"}),
    ((LATEST, "s", PATTERN), {"pattern": PATTERN, "offset_reset": "latest"}),
    ((extractor, "s", "a"), {"topics": ("a",), "timestamp_extractor": extractor}),
    ((LATEST, extractor, "s", "a"), {"topics": ("a",), "offset_reset": "latest", "timestamp_extractor": extractor}),
    (("s", TEXT, LONG, "a", "b"), {"topics": ("a", "b"), **SERDES}),
    (("s", TEXT, LONG, PATTERN), {"pattern": PATTERN, **SERDES}),
    (("s", None, LONG, "a"), {"topics": ("a",), "value_serde": LONG}),
    (
        (LATEST, "s", extractor, TEXT, LONG, "a"),
        {"topics": ("a",), "offset_reset": "latest", "timestamp_extractor": extractor, **SERDES},
    ),
]


@pytest.mark.parametrize(("given", "meant"), SOURCES)
def test_a_source_takes_the_order_of_java(given: tuple[Any, ...], meant: dict[str, Any]) -> None:
    (node,) = nodes(Topology().add_source(*given))
    assert node == SourceSpec(name="s", **{"topics": (), **meant})
    assert type(node.offset_reset) in (str, type(None))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (("k", "out", "s"), {}),
        (("k", "out", partitioner, "s"), {"partitioner": partitioner}),
        (("k", "out", TEXT, LONG, "s"), SERDES),
        (("k", "out", TEXT, LONG, partitioner, "s"), {**SERDES, "partitioner": partitioner}),
        (("k", "out", TEXT, None, None, "s"), {"key_serde": TEXT}),
    ],
)
def test_a_sink_takes_the_order_of_java(given: tuple[Any, ...], meant: dict[str, Any]) -> None:
    sink = nodes(Topology().add_source("s", "a").add_sink(*given))[-1]
    assert sink == SinkSpec(name="k", parents=("s",), topic="out", topic_extractor=None, **meant)


@pytest.mark.parametrize("add", [Topology.add_global_store, Topology.add_read_only_state_store])
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (("t", "p", Pass), {}),
        ((TEXT, LONG, "t", "p", Pass), SERDES),
        ((extractor, TEXT, LONG, "t", "p", Pass), {**SERDES, "timestamp_extractor": extractor}),
        ((None, None, None, "t", "p", Pass), {}),
    ],
)
def test_a_store_kept_from_a_topic_takes_the_order_of_java(
    add: Callable[..., Topology], given: tuple[Any, ...], meant: dict[str, Any]
) -> None:
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("x"), TEXT, LONG)
    source, processor = nodes(add(Topology(), store, "s", *given))
    assert (source.name, source.topics, processor.name) == ("s", ("t",), "p")
    for option in ("key_serde", "value_serde", "timestamp_extractor"):
        assert getattr(source, option) is meant.get(option)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.add_source(LATEST), "Expected the name of the source and its topics"),
        (lambda t: t.add_source(TEXT, "s", "a"), "Expected the name of the source, got"),
        (lambda t: t.add_source(LATEST, "s", "a", offset_reset="earliest"), "offset_reset is given twice"),
        (lambda t: t.add_source("s", TEXT, LONG, "a", key_serde=TEXT), "key_serde is given twice"),
        (lambda t: t.add_source("s", TEXT, "a"), "Expected the names of topics one by one"),
        (lambda t: t.add_global_store("x", "s", TEXT, "t", "p", Pass), "or in Java's order store, source"),
        (lambda t: t.add_global_store("x", "s", "a", "b", "t", "p", Pass), "or in Java's order store, source"),
    ],
)
def test_other_orders_are_refused(call: Callable[[Topology], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(Topology())


def test_a_table_takes_its_store_alone() -> None:
    for table in (StreamsBuilder.table, StreamsBuilder.global_table):
        builder = StreamsBuilder()
        assert table(builder, "t", Materialized.as_("store")).queryable_store_name == "store"
        with pytest.raises(TypeError, match="Materialized twice"):
            table(builder, "u", Materialized.as_("one"), Materialized.as_("two"))
        table(builder, "v", Consumed.as_("source"), Materialized.as_("other"))
