"""Which serde each topic and store has where no operator names one: an inherited one, or that of an annotation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    KGroupedStream,
    KStream,
    KTable,
    Materialized,
    Produced,
    Repartitioned,
    Serde,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from penstock.dsl.suppressed import BufferConfig
from penstock.errors import StreamsError
from penstock.plan.subtopology import SinkSpec, SourceSpec
from penstock.serdes.format import format_of
from penstock.testing import TopologyTestDriver

S, D, B, J = Serdes.string(), Serdes.double(), Serdes.boolean(), Serdes.json()
MINUTE = TimeWindows.of_size_with_no_grace(60_000)
SESSION = SessionWindows.of_inactivity_gap_with_no_grace(60_000)
SLIDING = SlidingWindows.of_time_difference_with_no_grace(60_000)
WITHIN = JoinWindows.of_time_difference_with_no_grace(60_000)


@dataclass
class Total:
    amount: float


@dataclass
class Other:
    amount: float


def as_bytes(key: str, value: float) -> bytes:
    return key.encode()


def add(key: str, value: float, total: Total) -> Total:
    return Total(total.amount + value)


def merge(key: str, one: Total, other: Total) -> Total:
    return Total(one.amount + other.amount)


def joined(value: float, other: float) -> Total:
    return Total(value + other)


def regrouped(key: str, value: float) -> tuple[bool, Total] | None:
    return value > 0, Total(value)


def unannotated(*values: Any) -> Any:
    return values[-1]


def zero() -> Total:
    return Total(0)


class Program:
    """A stream and tables whose serdes are named at the source alone."""

    def __init__(self) -> None:
        self.builder = StreamsBuilder()
        self.stream: KStream[str, float] = self.builder.stream("in", Consumed.with_(S, D))
        self.other: KStream[str, bool] = self.builder.stream("other", Consumed.with_(S, B))
        self.table: KTable[str, float] = self.builder.table("table", Consumed.with_(S, D))
        self.flags: KTable[str, bool] = self.builder.table("flags", Consumed.with_(S, B))

    @property
    def moved(self) -> KStream[bytes, float]:
        """The stream under other keys, whose serde an annotation gives."""
        return self.stream.select_key(as_bytes)

    @property
    def by_bytes(self) -> KStream[bytes, bool]:
        return self.builder.stream("by-bytes", Consumed.with_(Serdes.bytes(), B))

    @property
    def grouped(self) -> KGroupedStream[str, float]:
        return self.stream.group_by_key()

    def serdes(self) -> dict[str, tuple[str | None, str | None]]:
        """Return the formats of keys and values of each store and of each topic that is written, by name."""
        found: dict[str, tuple[str | None, str | None]] = {}
        for subtopology in self.builder.build().build("app").subtopologies:
            for node in subtopology.nodes:
                if isinstance(node, SinkSpec) and node.topic is not None:
                    found[node.topic] = shown(node.key_serde), shown(node.value_serde)
            for node in subtopology.nodes:
                if isinstance(node, SourceSpec) and node.repartition:
                    (topic,) = node.topics
                    assert found.get(topic, read(node)) == read(node), f"{topic} is not read as it is written"
            for store in subtopology.stores.values():
                found[store.name] = shown(store.key_serde), shown(store.value_serde)
        return found


def read(node: SourceSpec) -> tuple[str | None, str | None]:
    return shown(node.key_serde), shown(node.value_serde)


def shown(serde: Serde | None) -> str | None:
    """Return the format of what `serde` writes where there are no defaults."""
    return None if serde is None else format_of(serde.with_defaults(None, None))


def kept(name: str = "s") -> Materialized:
    return Materialized.as_(name)


Case = tuple[str, Callable[[Program], object], dict[str, tuple[str | None, str | None]]]

CASES: list[Case] = [
    # streams
    ("to", lambda p: p.stream.to("out"), {"out": ("string", "double")}),
    ("to-key", lambda p: p.stream.to("out", Produced.with_(key_serde=J)), {"out": ("json", "double")}),
    ("to-value", lambda p: p.stream.to("out", Produced.with_(value_serde=J)), {"out": ("string", "json")}),
    ("to-name", lambda p: p.stream.to("out", Produced.as_("sink")), {"out": ("string", "double")}),
    ("split", lambda p: p.stream.split().default_branch().popitem()[1].to("out"), {"out": ("string", "double")}),
    ("merge-alike", lambda p: p.stream.merge(p.table.to_stream()).to("out"), {"out": ("string", "double")}),
    ("merge-others", lambda p: p.stream.merge(p.other).to("out"), {"out": ("string", None)}),
    (
        "repartition",
        lambda p: p.stream.repartition(Repartitioned.as_("r")),
        {"app-r-repartition": ("string", "double")},
    ),
    (
        "repartition-value",
        lambda p: p.stream.repartition(Repartitioned.with_(value_serde=J).with_name("r")).to("out"),
        {"app-r-repartition": ("string", "json"), "out": ("string", "json")},
    ),
    ("to_table", lambda p: p.stream.to_table(materialized=kept()), {"s": ("string", "double")}),
    (
        "to_table-value",
        lambda p: p.moved.to_table("n", kept().with_value_serde(J)).to_stream().to("out"),
        {"app-n-repartition": ("bytes", "json"), "s": ("bytes", "json"), "out": ("bytes", "json")},
    ),
    # tables
    (
        "table-materialized",
        lambda p: p.builder.table("t", Consumed.with_(key_serde=S), kept().with_value_serde(J)).to_stream().to("out"),
        {"s": ("string", "json"), "out": ("string", "json")},
    ),
    (
        "table-name",
        lambda p: p.builder.table("t", Consumed.as_("n"), Materialized.with_(S, J)).to_stream().to("out"),
        {"out": ("string", "json")},
    ),
    ("table-filter", lambda p: p.table.filter(unannotated, materialized=kept()), {"s": ("string", "double")}),
    (
        "table-filter-value",
        lambda p: p.table.filter(unannotated, materialized=Materialized.with_(value_serde=J)).to_stream().to("out"),
        {"out": ("string", "json")},
    ),
    ("table-map_values", lambda p: p.table.map_values(add_tax, materialized=kept()), {"s": ("string", "json")}),
    ("table-map_values-without", lambda p: p.table.map_values(str.split, materialized=kept()), {"s": ("string", None)}),
    ("table-transform_values", lambda p: p.table.transform_values(Any, materialized=kept()), {"s": ("string", None)}),
    (
        "suppress",
        lambda p: p.table.suppress(Suppressed.until_time_limit(1, BufferConfig.unbounded()).with_name("n")),
        {"n-store": ("string", "double")},
    ),
    # groups
    (
        "group_by_key-name",
        lambda p: p.moved.group_by_key(Grouped.as_("g")).reduce(unannotated, kept()),
        {"app-g-repartition": ("bytes", "double"), "s": ("bytes", "double")},
    ),
    (
        "group_by_key-key",
        lambda p: p.stream.group_by_key(Grouped.with_(key_serde=J)).reduce(unannotated, kept()),
        {"s": ("json", "double")},
    ),
    (
        "group_by_key-value",
        lambda p: p.stream.group_by_key(Grouped.with_(value_serde=J)).reduce(unannotated, kept()),
        {"s": ("string", "json")},
    ),
    (
        "group_by",
        lambda p: p.stream.group_by(as_bytes, Grouped.as_("g")).reduce(unannotated, kept()),
        {"app-g-repartition": ("bytes", "double"), "s": ("bytes", "double")},
    ),
    (
        "group_by-key",
        lambda p: p.stream.group_by(unannotated, Grouped.with_(J).with_name("g")).count(kept()),
        {"app-g-repartition": ("json", "double"), "s": ("json", "long")},
    ),
    (
        "group_by-value",
        lambda p: p.stream.group_by(as_bytes, Grouped.with_(value_serde=J).with_name("g")).count(kept()),
        {"app-g-repartition": ("bytes", "json"), "s": ("bytes", "long")},
    ),
    (
        "table-group_by",
        lambda p: p.table.group_by(regrouped, Grouped.as_("g")).reduce(unannotated, unannotated, kept()),
        {"app-g-repartition": ("boolean", None), "s": ("boolean", "json")},
    ),
    (
        "table-group_by-aggregate",
        lambda p: p.table.group_by(regrouped).aggregate(zero, unannotated, unannotated, kept()),
        {"s": ("boolean", "json")},
    ),
    # aggregations
    ("count-key", lambda p: p.grouped.count(kept().with_key_serde(J)), {"s": ("json", "long")}),
    ("reduce-value", lambda p: p.grouped.reduce(unannotated, kept().with_value_serde(J)), {"s": ("string", "json")}),
    ("aggregate", lambda p: p.grouped.aggregate(zero, unannotated, kept()), {"s": ("string", "json")}),
    ("aggregate-lambda", lambda p: p.grouped.aggregate(lambda: Total(0), add, kept()), {"s": ("string", "json")}),
    (
        "aggregate-value",
        lambda p: p.grouped.aggregate(zero, add, kept().with_value_serde(J)),
        {"s": ("string", "json")},
    ),
    ("aggregate-unknown", lambda p: p.grouped.aggregate(lambda: 0, unannotated, kept()), {"s": ("string", None)}),
    (
        "windows",
        lambda p: p.grouped.windowed_by(MINUTE).aggregate(zero, add, kept()).to_stream().to("out"),
        {"s": ("string", "json"), "out": ("string in Time windows", "json")},
    ),
    (
        "windows-reduce",
        lambda p: p.grouped.windowed_by(MINUTE).reduce(unannotated, kept()),
        {"s": ("string", "double")},
    ),
    (
        "sliding",
        lambda p: p.grouped.windowed_by(SLIDING).count(kept()).to_stream().to("out"),
        {"s": ("string", "long"), "out": ("string in Time windows", "long")},
    ),
    (
        "sessions",
        lambda p: p.grouped.windowed_by(SESSION).aggregate(lambda: 0, unannotated, merge, kept()).to_stream().to("out"),
        {"s": ("string", "json"), "out": ("string in Session windows", "json")},
    ),
    (
        "cogroup",
        lambda p: p.grouped.cogroup(add).aggregate(lambda: 0, kept()).to_stream().to("out"),
        {"s": ("string", "json"), "out": ("string", "json")},
    ),
    (
        "cogroup-windows",
        lambda p: p.grouped.cogroup(unannotated).windowed_by(MINUTE).aggregate(zero, kept()).to_stream().to("out"),
        {"s": ("string", "json"), "out": ("string in Time windows", "json")},
    ),
    (
        "cogroup-sessions",
        lambda p: p.grouped.cogroup(unannotated).windowed_by(SESSION).aggregate(zero, merge, kept()),
        {"s": ("string", "json")},
    ),
    # joins
    (
        "streams",
        lambda p: p.stream.join(p.other, joined, WITHIN, stream_joined=StreamJoined.as_("j")).to("out"),
        {
            "j-this-join-store": ("string", "double"),
            "j-other-join-store": ("string", "boolean"),
            "out": ("string", "json"),
        },
    ),
    (
        "streams-values",
        lambda p: p.stream.join(
            p.other, joined, WITHIN, stream_joined=StreamJoined.with_(None, J, J).with_store_name("j")
        ),
        {"j-this-join-store": ("string", "json"), "j-other-join-store": ("string", "json")},
    ),
    (
        "streams-key",
        lambda p: p.moved.join(p.by_bytes, joined, WITHIN, stream_joined=StreamJoined.with_(J).with_name("j")).to(
            "out"
        ),
        {"app-j-left-repartition": ("json", "double"), "out": ("json", "json")},
    ),
    (
        "stream-table",
        lambda p: p.moved.join(p.by_bytes.to_table(), joined, joined=Joined.as_("j")).to("out"),
        {"app-j-repartition": ("bytes", "double"), "out": ("bytes", "json")},
    ),
    (
        "stream-table-value",
        lambda p: p.moved.left_join(p.by_bytes.to_table(), joined, joined=Joined.with_(value_serde=J).with_name("j")),
        {"app-j-repartition": ("bytes", "json")},
    ),
    (
        "stream-global",
        lambda p: p.stream.join(p.builder.global_table("g", Consumed.with_(S, B)), joined, key_selector=unannotated).to(
            "out"
        ),
        {"out": ("string", "json")},
    ),
    (
        "tables",
        lambda p: p.table.join(p.flags, joined, materialized=kept()).to_stream().to("out"),
        {"s": ("string", "json"), "out": ("string", "json")},
    ),
    (
        "tables-without-store",
        lambda p: p.table.outer_join(p.flags, joined).to_stream().to("out"),
        {"out": ("string", "json")},
    ),
    (
        "foreign-key",
        lambda p: (
            p.table.join(p.flags, joined, foreign_key_extractor=unannotated, materialized=kept()).to_stream().to("out")
        ),
        {"s": ("string", "json"), "out": ("string", "json")},
    ),
]


def add_tax(value: float) -> Total:
    return Total(value * 1.2)


@pytest.mark.parametrize(("program", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_serde_that_no_operator_names_is_inherited(
    program: Callable[[Program], object], expected: dict[str, tuple[str | None, str | None]]
) -> None:
    written = Program()
    program(written)
    found = written.serdes()
    assert {name: found[name] for name in expected} == expected


def as_text(value: float) -> str:
    return str(value)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda p: p.stream.to("out", Produced.with_(value_serde=S).with_name("n")), "Sink n of topic out"),
        (
            lambda p: p.stream.to("out", Produced.with_(key_serde=D)),
            "keys are of type str, but DoubleSerde writes float",
        ),
        (lambda p: p.stream.map_values(as_text).to("out", Produced.with_(value_serde=D)), "values are of type str"),
        (lambda p: p.stream.map_values(add_tax).to("out", Produced.with_(value_serde=S)), "values are of type Total"),
        (lambda p: p.stream.repartition(Repartitioned.with_(value_serde=S)), "Name a serde of float, or convert"),
        (lambda p: p.stream.group_by_key(Grouped.with_(value_serde=S)), "group_by_key"),
        (lambda p: p.grouped.count(kept().with_value_serde(S)), "Store s"),
        (lambda p: p.grouped.windowed_by(MINUTE).reduce(unannotated, kept().with_value_serde(S)), "Store s"),
        (
            lambda p: p.grouped.windowed_by(MINUTE).count().to_stream().to("out", Produced.with_(key_serde=S)),
            "writes str. Name a serde of Windowed, such as WindowedSerdes.time_windowed(Serdes.string(), size_ms), or",
        ),
        (lambda p: p.table.filter(unannotated, materialized=Materialized.with_(D)), "keys are of type str"),
        (
            lambda p: p.stream.join(p.other, joined, WITHIN, stream_joined=StreamJoined.with_(S, D, D)),
            "other values are of type bool",
        ),
    ],
)
def test_a_serde_that_cannot_write_what_is_there_is_refused_where_it_is_named(
    wrong: Callable[[Program], object], told: str
) -> None:
    with pytest.raises(TypeError) as refused:
        wrong(Program())
    assert told in str(refused.value)
    assert __file__ in str(refused.value)


@pytest.mark.parametrize(
    "right",
    [
        lambda p: p.stream.to("out", Produced.with_(S, Serdes.float())),
        lambda p: p.stream.to("out", Produced.with_(Serdes.json(), Serdes.json(Total))),
        lambda p: p.stream.map_values(tax).to(
            "out", Produced.with_(value_serde=Serdes.long())
        ),  # a float may be an int
        lambda p: p.grouped.count(kept().with_value_serde(Serdes.integer())),
    ],
)
def test_a_serde_that_may_write_what_is_there_is_taken(right: Callable[[Program], object]) -> None:
    right(Program())


def tax(value: float) -> float:
    return 20


# ---------- serdes that are missing


def line_of(word: str) -> str:
    """Return where this file has `word` last, as a message names it."""
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{max(number for number, line in enumerate(lines, 1) if word in line)}"


def missing(builder: StreamsBuilder) -> str:
    """Return what a start without defaults says of the program."""
    with pytest.raises(StreamsError) as refused:
        TopologyTestDriver(builder.build())
    return "\n".join([str(refused.value), *refused.value.__notes__])


def test_a_missing_serde_is_named_with_its_node_its_topic_and_the_line_of_the_program() -> None:
    program = Program()
    program.stream.map_values(len).to("lengths")  # without one
    told = missing(program.builder)
    assert "KSTREAM-SINK-0000000009, which writes to topic lengths" in told
    assert f"(created at {line_of('# without' + ' one')})" in told
    assert "value_serde=Serdes.string() in Produced, or set default.value.serde" in told


def test_a_missing_serde_of_a_store_is_named_with_its_node_and_the_line_of_the_program() -> None:
    program = Program()
    program.grouped.aggregate(lambda: 0, unannotated, named="sums", materialized=kept())  # store without
    told = missing(program.builder)
    assert "Store 's' has no value serde" in told
    assert f"belongs to sums (created at {line_of('# store' + ' without')})" in told


def test_a_missing_serde_of_a_repartition_names_the_options_of_the_grouping() -> None:
    program = Program()
    program.stream.select_key(unannotated).group_by_key().count()
    told = missing(program.builder)
    assert "such as key_serde=Serdes.string() in Grouped, Joined, StreamJoined, Deduplicated or Repartitioned" in told


def test_a_missing_serde_of_a_topology_by_hand_is_named_with_the_line_of_its_source() -> None:
    topology = Topology()
    topology.add_source("read", "in")  # by hand
    with pytest.raises(StreamsError) as refused:
        TopologyTestDriver(topology)
    assert f"read, which reads topic in (created at {line_of('# by' + ' hand')})" in refused.value.__notes__[0]
