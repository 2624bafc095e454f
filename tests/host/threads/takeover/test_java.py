"""An application goes from Kafka Streams in Java to the threads host, to Spark and back, on a real Kafka, with all its
state."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path

import pytest

from penstock import savepoints
from penstock.errors import KafkaError
from penstock.host.spark.checkpoints.entry_map import MapFunction
from penstock.host.threads.takeover import plan_takeover, remove_dead_members
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from penstock.state.changelog_format import ChangelogRecord
from tests.host.spark.inline import InlineQuery
from tests.host.threads.support import Listening
from tests.host.threads.takeover import twin
from tests.host.threads.takeover.running import (
    VARIANTS,
    Application,
    JavaTwin,
    make_inputs,
    now_ms,
    split_as_taken,
    unexpired,
    write,
)
from tests.support.brokers import ON_KAFKA
from tests.support.kafka import RealKafka
from tests.support.waiting import WAIT_SECONDS, until

pytestmark = [*ON_KAFKA]

LOSING = "sales"
"""Kafka Streams 4.3.0 loses the order of time in the buffer of a join with a versioned table when it restores it."""

NUMBERED = ("priced-Buffer",)
"""Stores whose keys end in a number that an instance of Kafka Streams counts from 0."""
DUPLICATES = ("matched-this-join-store", "matched-outer-other-join-store")
"""Stores whose keys end in a number that goes on here, and begins at 0 again in a restarted Kafka Streams."""
VERSIONED = ("prices",)
"""Stores whose versions are of keys and times, whatever their order."""
REORDERED = ("counts", "billed")
"""Stores behind a repartition: which record comes last is open, and so are its time and headers."""
WRITTEN_AT = ("held-store", "priced-Buffer")
"""Stores whose records have the time of writing."""
PLAIN = (*DUPLICATES, "billing-subscription-store", "latest")
"""Stores whose entries have no time and no headers, which a savepoint therefore lacks (DIVERGENCES.md)."""
SESSIONS = ("sessions",)
"""Stores whose entries have no time but the end of the session."""
DELETED = ("recent",)
"""Stores whose entries are deleted when they expire, and in Java never."""

TRANSACTION_TIMEOUT_MS = 12_000
"""Of the transaction that Java is killed in: more than Java needs to start and to write its first records."""


class Leg(Enum):
    """Where the application has run when its changelogs are compared, behind Java."""

    THREADS = auto()
    SPARK = auto()
    JAVA = auto()


@pytest.fixture
def java(real_kafka: RealKafka) -> Iterator[JavaTwin]:
    with JavaTwin() as started:
        yield started


def _refused(place: Application) -> KafkaError:
    """Return the error with which an instance ends."""
    host, listening = place.host(), Listening()
    host.start(listening)
    try:
        assert listening.ended.wait(WAIT_SECONDS)
    finally:
        assert host.close(60_000)
    assert isinstance(listening.error, KafkaError)
    return listening.error


def _leave_alone(place: Application, name: str, java: JavaTwin, directory: Path) -> dict[str, list[ChangelogRecord]]:
    """Return the changelogs of an application in Java that has processed all that `place` has, without a break."""
    alone = Application(place.servers, name, place.inputs, directory, place.settings)
    java.start(alone, directory)
    assert until(alone.is_done)
    java.close(alone)
    return alone.changelogs()


def _entry(name: str, record: ChangelogRecord, leg: Leg) -> ChangelogRecord:
    """Return a record of a changelog without what is open, or what another host does not keep."""
    key, timestamp, headers = record.key, record.timestamp, record.headers
    if _is(name, NUMBERED) or (leg is Leg.JAVA and _is(name, DUPLICATES)):
        key = key[: -len(b"\0\0\0\1")]
    if _is(name, REORDERED) or (leg is not Leg.THREADS and _is(name, PLAIN)):
        timestamp, headers = 0, ()
    elif _is(name, WRITTEN_AT) or (leg is not Leg.THREADS and _is(name, SESSIONS)):
        timestamp = 0
    return ChangelogRecord(key, record.value, timestamp, headers)


def _entries(name: str, rows: Iterable[ChangelogRecord], leg: Leg) -> list[ChangelogRecord]:
    """Return the entries of which the records of a changelog tell, in a given order."""
    versioned = _is(name, VERSIONED)
    last = {(row.key, row.timestamp if versioned else 0): row for row in rows}
    kept = unexpired(name, [row for row in last.values() if versioned or row.value is not None])
    entries = [_entry(name, row, leg) for row in kept]
    return sorted(entries, key=lambda row: (row.key, row.timestamp or 0, row.value or b""))


def _is(name: str, stores: Sequence[str]) -> bool:
    return any(f"-{store}-" in name for store in stores)


def _check(found: Mapping[str, list[ChangelogRecord]], expected: Mapping[str, list[ChangelogRecord]], leg: Leg) -> None:
    """Check that changelogs tell of the same entries."""
    assert found.keys() == expected.keys()
    for name, rows in found.items():
        if leg is not Leg.JAVA or not _is(name, NUMBERED):
            assert _entries(name, rows, leg) == _entries(name, expected[name], leg), (name, leg)


def _check_order(found: Mapping[str, list[ChangelogRecord]], expected: Mapping[str, list[ChangelogRecord]]) -> None:
    """Check that each key has changed in the same order. A commit writes the last of its changes of a key."""
    for name, rows in found.items():
        if not _is(name, (*REORDERED, *WRITTEN_AT)):
            changes: dict[bytes, Iterator[ChangelogRecord]] = {}
            for key in {row.key for row in rows}:
                changes[key] = iter([row for row in expected[name] if row.key == key])
            for row in rows:
                if row.value is not None or not _is(name, DELETED):
                    assert row in changes[row.key], (name, row)


def _without_late_days(records: Iterable[twin.Input]) -> Iterator[twin.Input]:
    """Yield the records without those of `days` that may be late: the hour of the run decides where its days end."""
    newest: dict[tuple[str, int], int] = {}
    for each in records:
        place = each.topic, each.partition
        newest[place] = max(newest.get(place, 0), each.timestamp)
        if each.topic != "days" or newest[place] - each.timestamp < 2 * twin.HOUR:
            yield each


@pytest.mark.parametrize(("guarantee", "store_format"), VARIANTS)
def test_an_application_goes_from_java_and_back(
    guarantee: str,
    store_format: str,
    real_kafka: RealKafka,
    java: JavaTwin,
    tmp_path: Path,
    unique_name: Callable[[str], str],
) -> None:
    servers, settings = real_kafka.bootstrap_servers, twin.settings(guarantee, store_format)
    # Java starts behind a third and two thirds, where no record is late for a clock that Kafka Streams does not keep.
    sixths = split_as_taken(list(_without_late_days(twin.records(3, now_ms()))), 6)
    parts = [sixths[0] + sixths[1], sixths[2], sixths[3], sixths[4] + sixths[5]]
    inputs = unique_name("in-")
    make_inputs(servers, inputs)
    place = Application(servers, unique_name("app"), inputs, tmp_path, settings)
    built = built_topology(twin.topology(inputs, place.name), place.name)

    def left_alone(leg: Leg) -> dict[str, list[ChangelogRecord]]:
        return _leave_alone(place, unique_name(f"alone-{leg.name}"), java, tmp_path / f"alone-{leg.name}")

    write(servers, inputs, parts[0])
    java.start(place, tmp_path / "before")
    assert until(place.is_done)
    assert "has members of another program" in str(_refused(place))
    [obstacle] = plan_takeover(built, place.config).obstacles
    assert f"The group {place.name} has 1 member" in obstacle
    java.close(place)

    write(servers, inputs, parts[1])
    plan = plan_takeover(built, place.config)
    assert (plan.obstacles, plan.warnings) == ((), ())
    assert {store.name for store in plan.stores} >= {"counts", "sessions", "held-store", "prices", "latest"}
    place.run()
    changelogs, expected_changelogs = place.changelogs(), left_alone(Leg.THREADS)
    _check(changelogs, expected_changelogs, Leg.THREADS)
    _check_order(changelogs, expected_changelogs)

    topology, saved = twin.topology(inputs, place.name), str(tmp_path / "saved")
    savepoints.import_from_kafka(topology, place.config)
    write(servers, inputs, parts[2])
    query = InlineQuery(topology, place.config, place.admin)
    query.run_to_end()
    query.close()
    before, meanwhile, on_spark, behind = twin.expected(parts, settings)
    assert place.outputs() == twin.outputs([*before, *meanwhile, *on_spark])
    savepoints.take(place.config, saved)
    assert savepoints.export_to_kafka(saved, topology, place.config) > 0
    _check(place.changelogs(), left_alone(Leg.SPARK), Leg.SPARK)

    write(servers, inputs, parts[3])
    java.start(place, tmp_path / "before")  # where it has a copy of its stores, of an earlier time
    assert until(place.is_done)
    java.close(place)
    found, expected = place.outputs(), twin.outputs([*before, *meanwhile, *on_spark, *behind])
    for name in twin.OUTPUTS:
        if name != LOSING:
            assert found[name] == expected[name], name
    _check(place.changelogs(), left_alone(Leg.JAVA), Leg.JAVA)


def test_a_transaction_that_java_was_killed_in_is_neither_lost_nor_doubled(
    real_kafka: RealKafka, java: JavaTwin, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    servers, settings = real_kafka.bootstrap_servers, twin.settings("exactly_once_v2", "default")
    sixths = split_as_taken(list(_without_late_days(twin.records(3, now_ms()))), 6)
    parts = [sixths[0] + sixths[1], sixths[2] + sixths[3]]
    inputs = unique_name("in-")
    make_inputs(servers, inputs)
    place = Application(servers, unique_name("app"), inputs, tmp_path, settings)
    built = built_topology(twin.topology(inputs, place.name), place.name)
    write(servers, inputs, parts[0])
    java.start(place, tmp_path / "java")
    assert until(place.is_done)
    java.close(place)
    committed = place.committed()

    write(servers, inputs, parts[1])
    java.start(place, tmp_path / "java", commit_interval_ms=TRANSACTION_TIMEOUT_MS)
    written = {TopicPartition(f"{place.name}-{name}-changelog", 0) for name in ("latest", "sessions")}
    assert until(lambda: written <= set(place.in_transaction()))
    java.kill()
    assert written <= set(place.in_transaction())
    assert place.committed() == committed

    [obstacle] = plan_takeover(built, place.config).obstacles
    assert f"The group {place.name} has 1 member" in obstacle
    assert len(remove_dead_members(place.config, 1)) == 1
    assert plan_takeover(built, place.config).obstacles == ()
    place.run()
    assert place.in_transaction() == []
    assert place.outputs() == twin.outputs(itertools.chain.from_iterable(twin.expected(parts, settings)))


@pytest.mark.parametrize("store_format", ["default", "headers"])
def test_java_goes_on_with_state_that_functions_have_rewritten(
    store_format: str, real_kafka: RealKafka, java: JavaTwin, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    servers, settings = real_kafka.bootstrap_servers, twin.settings("exactly_once_v2", store_format)
    halves = split_as_taken(list(_without_late_days(twin.records(3, now_ms()))), 2)
    inputs = unique_name("in-")
    make_inputs(servers, inputs)
    place = Application(servers, unique_name("app"), inputs, tmp_path, settings)
    topology, saved = twin.topology(inputs, place.name), str(tmp_path / "saved")
    write(servers, inputs, halves[0])
    java.start(place, tmp_path / "java")
    assert until(place.is_done)
    java.close(place)

    savepoints.import_from_kafka(topology, place.config)
    savepoints.take(place.config, saved)
    rewritten = place.config.overridden({"penstock.checkpoint.dir": str(tmp_path / "rewritten")})
    maps: dict[str, MapFunction] = {
        **dict.fromkeys(("counts", "clicks-per-window"), lambda key, count: (key, count + 1_000)),
        **dict.fromkeys(("latest", "sessions"), lambda key, text: (key, f"{text}#")),
    }
    restored = savepoints.restore(saved, rewritten, maps=maps, topology=topology)
    assert all(each.changed == each.entries > 0 for each in restored.mapped)
    savepoints.take(rewritten, str(tmp_path / "saved-again"))
    assert savepoints.export_to_kafka(str(tmp_path / "saved-again"), topology, place.config) > 0

    write(servers, inputs, halves[1])
    java.start(place, tmp_path / "java")
    assert until(place.is_done)
    java.close(place)
    found = {
        name: [each.value or b"" for rows in by_key.values() for each in rows]
        for name, by_key in place.outputs().items()
    }
    for name in ("words", "clicks"):
        assert any(int.from_bytes(value, "big") > 1_000 for value in found[name]), name
    for name in ("visits", "events"):
        assert any(b"#" in value for value in found[name]), name
