"""Tables and stores with a time to live, on each host: results, state, queries, restarts and changed programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Consumed,
    Grouped,
    KeyQuery,
    Materialized,
    OnExpiry,
    Processor,
    ProcessorContext,
    Produced,
    QueryableStoreTypes,
    RangeQuery,
    Record,
    Serdes,
    StateQueryRequest,
    StoreQueryParameters,
    Stores,
    StreamsBuilder,
    Topology,
    TtlClock,
    TtlRenewal,
    ValueAndTimestamp,
)
from penstock.testing import TopologyTestDriver
from tests.host.support import WITH_PROCESSES, InputRecord, Program, Runner, wait_for
from tests.host.test_time import FileClock

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker, pytest.mark.partitions(1, 1)]

STRING, LONG = Serdes.string(), Serdes.long()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
TTL_MS = 10_000
ROUNDS = [
    [("ann", "tea", 0), ("bob", "tea", 4_000), ("cid", "cup", 5_000)],
    [("bob", "cup", 9_000), ("dan", "tea", 12_000)],
    [("ann", "cup", 15_500), ("dan", "pot", 16_000), ("eve", "tea", 3_000)],
    [("eve", "pot", 40_000)],
]
SETTINGS = {"default.key.serde": STRING, "default.value.serde": STRING, "penstock.query.refresh.ms": 0}


def carts(source: str, target: str, options: Materialized) -> Topology:
    """A table of carts, and the number of carts with each content."""
    builder = StreamsBuilder()
    table = builder.table(source, TEXT, options)
    table.to_stream().map_values(lambda value: f"cart {value}").to(target)
    by_content = table.group_by(lambda key, value: (value, key), Grouped.with_(STRING, STRING).with_name("content"))
    counted = by_content.count(Materialized.as_("contents").with_value_serde(LONG).with_caching_disabled())
    counted.to_stream().map_values(lambda value: f"carts {value}").to(target)
    return builder.build()


def input_of(rows: list[tuple[str, str, int]]) -> list[InputRecord]:
    return [InputRecord(key.encode(), value.encode(), time) for key, value, time in rows]


def store(program: Program, name: str) -> Any:
    kind = QueryableStoreTypes.timestamped_key_value_store()
    return program.queries().store(StoreQueryParameters.from_name_and_type(name, kind))


def expected(topology: Topology, source: str, target: str, rounds: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the output and the tombstones of the table, and its entries, of the test driver."""
    with TopologyTestDriver(topology, {**SETTINGS, "application.id": "expected"}) as driver:
        for rows in ROUNDS[:rounds]:
            for each in input_of(rows):
                driver.pipe_bytes(source, each.key, each.value, each.timestamp, ())
        records = driver.read_all_bytes()
        table: Any = driver.get_timestamped_key_value_store("carts")
        output = [(each.key, each.value, each.timestamp) for each in records if each.topic == target]
        changes = [(r.key, r.value, r.timestamp) for r in records if r.topic == "expected-carts-changelog"]
        return output, [change for change in changes if change[1] is None], list(table.all())


@pytest.mark.parametrize("caching", [False, True])
def test_results_and_state_are_those_of_the_test_driver(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], caching: bool
) -> None:
    source, target = topics
    options = Materialized.as_("carts").with_ttl(TTL_MS)
    topology = carts(source, target, options if caching else options.with_caching_disabled())
    program = start(topology, runner.config(application, {**SETTINGS, **runner.with_changelogs}))
    for number, rows in enumerate(ROUNDS, 1):
        runner.write(source, input_of(rows))
        program.run_to_end()
        output, tombstones, entries = expected(topology, source, target, number)
        carts_now = store(program, "carts")
        assert list(carts_now.all()) == entries
        assert [carts_now.get(key) for key in ("ann", "nobody")] == [dict(entries).get("ann"), None]
        request = StateQueryRequest.in_store("carts")
        found = program.queries().query(request.with_query(KeyQuery.with_key("ann"))).partition_results[0].result
        assert found == (dict(entries)["ann"].value if "ann" in dict(entries) else None)
        ranged = program.queries().query(request.with_query(RangeQuery.with_no_bounds())).partition_results[0].result
        assert [key for key, _ in ranged] == [key for key, _ in entries]
        program.restart()
    written = [(each.key, each.value, each.timestamp) for each in runner.read(target)]
    if caching:  # a commit of several records omits updates, so times may differ, but not the last values
        assert {key: value for key, value, _ in written} == {key: value for key, value, _ in output}
    else:
        assert sorted(written) == sorted(output)
    logged = [(each.key, each.value, each.timestamp) for each in runner.read(f"{application}-carts-changelog")]
    assert {key for key, value, _ in logged if value is None} == {key for key, _, _ in tombstones}
    last = {key: value for key, value, _ in logged}
    assert {key for key, value in last.items() if value is not None} == {key.encode() for key, _ in entries}


class Cart(Processor):
    """Keeps each cart; forwards how many it knows."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.carts: Any = context.get_state_store("carts")

    def process(self, record: Record[str, str]) -> None:
        self.carts.put(record.key, ValueAndTimestamp(record.value, record.timestamp))
        with self.carts.all() as known:
            self.context.forward(record.with_value(" ".join(key for key, _ in known)))


def kept_carts(source: str, target: str, clock: TtlClock) -> Topology:
    builder = StreamsBuilder()
    supplier = Stores.persistent_timestamped_key_value_store("carts")
    kept = Stores.timestamped_key_value_store_builder(supplier, STRING, STRING).with_ttl(TTL_MS, clock=clock)
    builder.add_state_store(kept)
    builder.stream(source, TEXT).process(Cart, "carts").to(target, Produced.with_(STRING, STRING))
    return builder.build()


def test_the_wall_clock_expires_entries_without_records(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    clock = FileClock(tmp_path / "clock")
    began = clock.milliseconds()
    config = runner.config(application, {**SETTINGS, "commit.interval.ms": 0})  # the clock only moves in this test
    program = start(kept_carts(*topics, TtlClock.WALL_CLOCK_TIME), config, clock)
    runner.write(topics[0], input_of([("ann", "tea", began), ("bob", "cup", began + 5_000), ("old", "tea", 1)]))
    program.run_to_end()
    assert [each.value for each in runner.read(topics[1])] == [b"ann", b"ann bob", b"ann bob"]

    def shown() -> list[str]:
        program.run_to_end()
        return [key for key, _ in store(program, "carts").all()]

    assert shown() == ["ann", "bob"]
    clock.advance(TTL_MS)
    wait_for(lambda: shown() == ["bob"])
    program.restart()
    program.run_to_end()
    clock.advance(5_000)
    wait_for(lambda: shown() == [])
    program.close()
    wait_for(lambda: runner.store(config, "carts") == {})


class Visit(Processor):
    """Keeps the first value of each key, and reads it at each record; forwards what it finds."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.carts: Any = context.get_state_store("carts")

    def process(self, record: Record[str, str]) -> None:
        found = self.carts.get(record.key)
        if found is None:
            self.carts.put(record.key, ValueAndTimestamp(record.value, record.timestamp))
        self.context.forward(record.with_value("new" if found is None else f"{found.value} {found.timestamp}"))


def visited_carts(source: str, target: str, caching: bool, clock: TtlClock = TtlClock.STREAM_TIME) -> Topology:
    builder = StreamsBuilder()
    supplier = Stores.persistent_timestamped_key_value_store("carts")
    kept = Stores.timestamped_key_value_store_builder(supplier, STRING, STRING)
    kept = kept.with_caching_enabled() if caching else kept
    builder.add_state_store(kept.with_ttl(TTL_MS, clock=clock, renewal=TtlRenewal.READS_AND_WRITES))
    builder.stream(source, TEXT).process(Visit, "carts").to(target, Produced.with_(STRING, STRING))
    return builder.build()


@pytest.mark.parametrize("caching", [False, True])
def test_reads_renew_entries_across_restarts_and_queries_do_not(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], caching: bool
) -> None:
    source, target = topics
    config = runner.config(application, {**SETTINGS, **runner.with_changelogs})
    program = start(visited_carts(source, target, caching), config)

    def seen_after(*rows: tuple[str, int]) -> list[str]:
        """Return what these keys find at their times, after a restart."""
        before = len(runner.read(target))
        runner.write(source, input_of([(key, "tea", time) for key, time in rows]))
        program.run_to_end()
        program.restart()
        return [(each.value or b"").decode() for each in runner.read(target)[before:]]

    assert seen_after(("ann", 0), ("bob", 0)) == ["new", "new"]
    # less than a tenth of the time to live is no renewal
    assert seen_after(("ann", 999), ("ann", 8_000)) == ["tea 0", "tea 8000"]
    program.run_to_end()
    assert [store(program, "carts").get(key) for key in ("ann", "bob")] == [
        ValueAndTimestamp("tea", 8_000),
        ValueAndTimestamp("tea", 0),
    ]
    assert seen_after(("ann", 17_000), ("bob", 17_000), ("ann", 26_000)) == ["tea 17000", "new", "tea 26000"]
    logged = [(each.key, each.value, each.timestamp) for each in runner.read(f"{application}-carts-changelog")]
    assert {key: time for key, _, time in logged} == {b"ann": 26_000, b"bob": 17_000}
    assert seen_after(("ann", 36_000)) == ["new"]


def test_reads_renew_entries_by_the_wall_clock(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    clock = FileClock(tmp_path / "clock")
    began = clock.milliseconds()
    config = runner.config(application, {**SETTINGS, "commit.interval.ms": 0})  # the clock only moves in this test
    program = start(visited_carts(*topics, False, TtlClock.WALL_CLOCK_TIME), config, clock)

    def shown() -> list[str]:
        program.run_to_end()
        return [key for key, _ in store(program, "carts").all()]

    runner.write(topics[0], input_of([("ann", "tea", began), ("bob", "cup", began)]))
    assert shown() == ["ann", "bob"]
    clock.advance(TTL_MS - 1_000)
    runner.write(topics[0], input_of([("ann", "tea", began)]))  # late: the wall clock counts
    assert shown() == ["ann", "bob"]
    assert [each.value for each in runner.read(topics[1])] == [b"new", b"new", b"tea %d" % (began + TTL_MS - 1_000)]
    clock.advance(1_000)
    wait_for(lambda: shown() == ["ann"])
    clock.advance(TTL_MS - 1_000)
    wait_for(lambda: shown() == [])


def test_a_time_to_live_is_added_and_removed_with_the_state(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    source = topics[0]
    plain = Materialized.as_("carts").with_caching_disabled()
    program = start(carts(*topics, plain), runner.config(application, SETTINGS))
    runner.write(source, input_of([("ann", "tea", 0), ("bob", "tea", 9_000)]))
    program.run_to_end()
    program.change(carts(*topics, plain.with_ttl(TTL_MS)))
    runner.write(source, input_of([("cid", "cup", 12_000)]))
    program.run_to_end()
    assert [key for key, _ in store(program, "carts").all()] == ["bob", "cid"]

    def contents() -> list[Any]:
        program.run_to_end()
        return list(store(program, "contents").all())

    wait_for(lambda: contents() == CONTENTS)
    program.change(carts(*topics, plain))
    runner.write(source, input_of([("dan", "cup", 90_000)]))
    program.run_to_end()
    assert [key for key, _ in store(program, "carts").all()] == ["bob", "cid", "dan"]


CONTENTS = [("cup", ValueAndTimestamp(1, 12_000)), ("tea", ValueAndTimestamp(1, 10_000))]


def test_a_table_may_forget_without_forwarding(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    options = Materialized.as_("carts").with_ttl(TTL_MS, on_expiry=OnExpiry.DROP)
    program = start(carts(*topics, options), runner.config(application, SETTINGS))
    runner.write(topics[0], input_of([("ann", "tea", 0), ("bob", "cup", 30_000), ("bob", "cup", 31_000)]))
    program.run_to_end()
    assert [key for key, _ in store(program, "carts").all()] == ["bob"]
    assert [each.value for each in runner.read(topics[1]) if each.key == b"ann"] == [b"cart tea"]
