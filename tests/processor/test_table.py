"""What the operators of tables forward, on the test driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import KTable, Materialized, Serdes, Stores, StreamsBuilder, ValueTransformerWithKey
from penstock.testing import TestRecord, TopologyTestDriver
from tests.support.tables import STRINGS, UNCACHED, Row, updates

ROWS: list[Row] = [("a", "x", 10), ("a", "y", 5), ("b", "x", 11), ("a", None, 12), ("c", None, 13), (None, "z", 14)]


def run(make: Callable[[KTable], KTable], rows: list[Row] = ROWS, config: Mapping[str, Any] = UNCACHED) -> list[Any]:
    builder = StreamsBuilder()
    make(builder.table("in")).to_stream().to("out")
    return updates(builder, rows, config)


def test_a_table_forwards_every_update_and_drops_what_has_no_key() -> None:
    assert run(lambda table: table) == ROWS[:-1]


def test_a_filter_without_old_values_deletes_what_was_never_there() -> None:
    result = run(lambda table: table.filter(lambda key, value: value == "y"))
    assert result == [("a", None, 10), ("a", "y", 5), ("b", None, 11), ("a", None, 12), ("c", None, 13)]


def test_a_filter_with_old_values_leaves_out_what_was_never_there() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", materialized=Materialized.as_("s"))
    table.filter(lambda key, value: value == "y").to_stream().to("out")
    assert updates(builder, ROWS) == [("a", "y", 5), ("a", None, 12)]


def test_mappers_do_not_see_deletes_but_transformers_do() -> None:
    class Shown(ValueTransformerWithKey):
        def transform(self, key: Any, value: Any) -> Any:
            return f"{key}={value}"

    mapped = run(lambda table: table.map_values(lambda key, value: f"{key}={value}"))
    transformed = run(lambda table: table.transform_values(Shown))
    assert [value for _, value, _ in mapped] == ["a=x", "a=y", "b=x", None, None]
    assert [value for _, value, _ in transformed] == ["a=x", "a=y", "b=x", "a=None", "c=None"]


def test_a_versioned_table_refuses_what_is_older_than_its_history() -> None:
    builder = StreamsBuilder()
    versioned = Materialized.as_(Stores.persistent_versioned_key_value_store("v", 10))
    builder.table("in", materialized=versioned).to_stream().to("out")
    rows: list[Row] = [("a", "new", 100), ("a", "late", 95), ("a", "too late", 80)]
    assert updates(builder, rows) == rows[:2]


def test_a_count_of_a_versioned_table_leaves_late_updates_out() -> None:
    builder = StreamsBuilder()
    versioned = Materialized.as_(Stores.persistent_versioned_key_value_store("v", 1000))
    counts = builder.table("in", materialized=versioned).group_by(lambda key, value: (value, value)).count()
    counts.to_stream().to("out")
    rows: list[Row] = [("a", "x", 100), ("a", "y", 90), ("b", "x", 101)]
    assert updates(builder, rows, value_serde=Serdes.long()) == [("x", 1, 100), ("x", 2, 101)]


OPERATORS: Mapping[str, Callable[[KTable], KTable]] = {
    "filter": lambda table: table.filter(lambda key, value: value < "c"),
    "map_values": lambda table: table.map_values(lambda value: None if value == "a" else value + "!"),
    "stored filter": lambda table: table.filter(lambda key, value: value < "c", materialized=Materialized.as_("f")),
    "stored map_values": lambda table: table.map_values(str.upper, materialized=Materialized.as_("m")),
}
KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from([None, "a", "b", "c", "d"])


@given(
    rows=st.lists(st.tuples(KEYS, VALUES, st.integers(0, 50)), max_size=30),
    chain=st.lists(st.sampled_from(sorted(OPERATORS)), max_size=3, unique=True),
    stored=st.booleans(),
    cached=st.booleans(),
)
def test_what_is_forwarded_ends_as_the_table(rows: list[Row], chain: list[str], stored: bool, cached: bool) -> None:
    """The last update of each key is its entry, whatever has a store, and old values are the entries before."""

    def expected() -> dict[str, str]:
        entries = {key: value for key, value, _ in rows if key is not None}
        for name in chain:
            if "filter" in name:
                entries = {key: value for key, value in entries.items() if value is not None and value < "c"}
            elif name == "map_values":
                entries = {k: v + "!" for k, v in entries.items() if v is not None and v != "a"}
            else:
                entries = {k: v.upper() for k, v in entries.items() if v is not None}
        return {key: value for key, value in entries.items() if value is not None}

    builder = StreamsBuilder()
    table = builder.table("in", materialized=Materialized.as_("source") if stored else None)
    for name in chain:
        table = OPERATORS[name](table)
    table.to_stream().to("out")
    table.group_by(lambda key, value: ("all", f"{key}={value},")).reduce(
        lambda parts, one: "".join(sorted([*(part + "," for part in parts.split(",") if part), one])),
        lambda parts, one: parts.replace(one, "", 1),
        Materialized.as_("together"),
    )
    config = {**(STRINGS if cached else UNCACHED), "application.id": "app"}
    with TopologyTestDriver(builder.build(config), config) as driver:
        source = driver.create_input_topic("in", Serdes.string(), Serdes.string())
        for key, value, timestamp in rows:
            source.pipe_input(TestRecord(key, value, timestamp=timestamp))
        output = driver.create_output_topic("out", Serdes.string(), Serdes.string())
        last = {record.key: record.value for record in output.read_records_to_list()}
        store = driver.get_key_value_store("together")
        assert store is not None
        together = store.get("all") or ""
    assert {key: value for key, value in last.items() if value is not None} == expected()
    assert together == "".join(sorted(f"{key}={value}," for key, value in expected().items()))
