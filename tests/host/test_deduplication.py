"""Deduplication on each host: what the test driver forwards, over partitions, a repartition and restarts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from penstock import Consumed, Deduplicated, QueryableStoreTypes, Serdes, StoreQueryParameters, StreamsBuilder, Topology
from penstock.plan.partitioning import partition_for
from penstock.testing import TopologyTestDriver
from tests.host.support import WITH_PROCESSES, InputRecord, Program, Runner

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker]

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
INTERVAL_MS = 1_000
PARTITIONS = 2
ROUNDS = 4
VALUES = {"default.key.serde": STRING, "default.value.serde": STRING, "penstock.query.refresh.ms": 0}

Copy = tuple[bytes | None, bytes | None, int]


def unique(prefix: str) -> Topology:
    """Records once by their key, once by key and value, and once by their value after a repartition."""
    builder = StreamsBuilder()
    stream = builder.stream(f"{prefix}-in", TEXT)
    stream.deduplicate_by_key(INTERVAL_MS, Deduplicated.as_("keys")).to(f"{prefix}-keys")
    ids = Deduplicated(id_serde=STRING, name="ids")
    stream.deduplicate_by_key_value(lambda key, value: value, INTERVAL_MS, ids).to(f"{prefix}-ids")
    by_value = builder.stream(f"{prefix}-other", TEXT).select_key(lambda key, value: value)
    by_value.deduplicate_by_key(INTERVAL_MS, Deduplicated.as_("values")).to(f"{prefix}-values")
    return builder.build()


OUTPUTS = ("keys", "ids", "values")


def place_of(key: bytes | None) -> int:
    return 0 if key is None else partition_for(key, PARTITIONS)


def rounds(seed: int) -> list[list[InputRecord]]:
    """Return records by time, some of which come late, and some without a key."""
    chosen = random.Random(seed)
    found: list[list[InputRecord]] = []
    for number in range(ROUNDS):
        records = []
        for step in range(60):
            key = chosen.choice((b"a", b"b", b"c", b"d", None))
            time = 10_000 + 1_500 * number + 25 * step - chosen.choice((0, 0, 0, 40, 900, 2_000))
            records.append(InputRecord(key, b"%d" % chosen.randrange(4), time, place_of(key)))
        found.append(records)
    return found


def expected(topic: str, rows: list[InputRecord]) -> dict[str, Counter[Copy]]:
    """Return what the test driver forwards of `rows` of one task, by output."""
    found: dict[str, Counter[Copy]] = {name: Counter() for name in OUTPUTS}
    with TopologyTestDriver(unique("x"), VALUES) as driver:
        for record in rows:
            driver.pipe_bytes(f"x-{topic}", record.key, record.value, record.timestamp, ())
        for each in driver.read_all_bytes():
            if each.topic.startswith("x-"):
                found[each.topic.removeprefix("x-")][each.key, each.value, each.timestamp] += 1
    return found


def copies(runner: Runner, topic: str) -> Counter[Copy]:
    return Counter((record.key, record.value, record.timestamp) for record in runner.read(topic))


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_each_record_is_forwarded_once_over_restarts(
    runner: Runner, start: Callable[..., Program], unique_name: Callable[[str], str], execution: str
) -> None:
    prefix = unique_name(execution)
    runner.create_topics({**{f"{prefix}-{name}": PARTITIONS for name in ("in", *OUTPUTS)}, f"{prefix}-other": 1})
    written = rounds(seed=5)
    program = start(unique(prefix), runner.config(prefix, {**VALUES, "penstock.execution": execution}))
    for records in written:
        runner.write(f"{prefix}-in", records)
        runner.write(f"{prefix}-other", [record._replace(partition=0) for record in records])
        program.run_to_end()
        program.restart()
    rows = [record for records in written for record in records]
    wanted: dict[str, Counter[Copy]] = {name: Counter() for name in OUTPUTS}
    for place in range(PARTITIONS):
        by_key = expected("in", [record for record in rows if record.partition == place])
        wanted["keys"] += by_key["keys"]
        wanted["ids"] += by_key["ids"]
    wanted["values"] = expected("other", rows)["values"]  # one partition, as the source of the repartition topic
    for name in OUTPUTS:
        assert copies(runner, f"{prefix}-{name}") == wanted[name], name
        assert 0 < wanted[name].total() < len(rows)


def test_the_store_is_read_by_key_and_by_id(
    runner: Runner, start: Callable[..., Program], unique_name: Callable[[str], str]
) -> None:
    prefix = unique_name("read")
    runner.create_topics({f"{prefix}-{name}": PARTITIONS for name in ("in", "other", *OUTPUTS)})
    program = start(unique(prefix), runner.config(prefix, VALUES))
    place = partition_for(b"a", PARTITIONS)
    runner.write(f"{prefix}-in", [InputRecord(b"a", b"x", time, place) for time in (500, 700, 1_400)])
    program.run_to_end()
    queries = program.queries()
    keys = queries.store(StoreQueryParameters.from_name_and_type("keys", QueryableStoreTypes.window_store()))
    with keys.fetch("a", 0, 2_000) as times:
        assert list(times) == [(500, True)]
    ids = queries.store(StoreQueryParameters.from_name_and_type("ids", QueryableStoreTypes.window_store()))
    assert ids.fetch(("a", "x"), 500) is True
    assert ids.fetch(("a", "y"), 500) is None
