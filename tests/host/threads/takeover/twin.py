"""One application twice: `topology` here, and the same in Java (Twin.java). With its input, and what it is to give."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock import (
    BufferConfig,
    CalendarWindows,
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    OnExpiry,
    Processor,
    Produced,
    Record,
    Serdes,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TimeWindows,
    Topology,
    Windowed,
)
from penstock.plan.partitioning import partition_for
from penstock.record import Headers
from penstock.testing import TopologyTestDriver

PARTITIONS = 2
SECOND = 1_000
HOUR = 3_600 * SECOND
TTL = 5 * SECOND
"""The time to live of the entries of the store `recent`."""
GROUPS = (
    ("words",),
    ("clicks",),
    ("visits",),
    ("left", "right"),
    ("readings",),
    ("meters",),
    ("customers", "orders"),
    ("prices", "sales"),
    ("events",),
    ("days",),
    ("taps",),
)
"""The inputs, those together whose records meet in one task before any repartition."""
OUTPUTS = ("words", "clicks", "visits", "left", "readings", "meters", "orders", "sales", "events", "days", "taps")
REORDERED = ("words", "orders")
"""Outputs behind a repartition: the order of their records is open, the last one of each key is not."""

HOURLY = (("days",),)
"""Groups with a step an hour, which end before the others begin: they cross a midnight."""
OF_STREAM_TIME = (("taps",),)
"""Groups whose results depend on the time of their task, which the test driver has only one of."""

FORGETFUL = ("left",)
"""Outputs of left joins, whose clock Kafka Streams does not keep: after a restart, other records release what has met
none, or it waits again. What has met one is compared."""

_STEPS = 36
_HOURS_BEFORE = 44
"""How early the hourly groups begin: the changelog of the store `days` keeps its records for 51 hours."""
_RECORDS_PER_STEP = 2


class Input(NamedTuple):
    """A record of an input topic, without the prefix of its name. timestamp: ms."""

    topic: str
    partition: int
    key: str
    value: str | None
    timestamp: int
    headers: Headers


class Latest(Processor[str, str, str, str]):
    """Sends what was before with each value, and forgets it at an x."""

    def init(self, context: Any) -> None:
        """Get the store."""
        super().init(context)
        self._latest = context.get_state_store("latest")

    def process(self, record: Record[str, str]) -> None:
        """Send, then keep."""
        before = self._latest.get(record.key)
        self.context.forward(record.with_value(f"{'null' if before is None else before}>{record.value}"))
        self._latest.put(record.key, None if record.value == "x" else record.value)


def topology(inputs: str, application: str) -> Topology:
    """Return the topology that reads the topics with the prefix `inputs` and writes to those of `application`."""
    builder = StreamsBuilder()
    string = Serdes.string()
    strings = Grouped.with_(string, string)
    counted = Produced.with_(string, Serdes.long())

    def out(name: str) -> str:
        return f"{application}-out-{name}"

    words = builder.stream(f"{inputs}words").flat_map_values(lambda line: line.split(" "))
    counts = words.group_by(lambda _, word: word, Grouped.as_("words")).count(Materialized.as_("counts"))
    counts.to_stream().to(out("words"), counted)

    clicks = builder.stream(f"{inputs}clicks").group_by_key(strings)
    clicks = clicks.windowed_by(TimeWindows.of_size_and_grace(10 * SECOND, 5 * SECOND))
    clicks.count(Materialized.as_("clicks-per-window")).to_stream(_named).to(out("clicks"), counted)

    visits = builder.stream(f"{inputs}visits").group_by_key(strings)
    sessions = visits.windowed_by(SessionWindows.of_inactivity_gap_and_grace(4 * SECOND, 2 * SECOND))
    joined = sessions.reduce(lambda before, value: before + value, Materialized.as_("sessions"))
    joined.to_stream(_named).to(out("visits"))

    builder.stream(f"{inputs}left").left_join(
        builder.stream(f"{inputs}right"),
        lambda left, right: f"{left}+{right or 'null'}",
        JoinWindows.of_time_difference_and_grace(3 * SECOND, 2 * SECOND),
        stream_joined=StreamJoined.with_(string, string, string).with_name("matching").with_store_name("matched"),
    ).to(out("left"))

    windows = TimeWindows.of_size_and_grace(10 * SECOND, 2 * SECOND)
    readings = builder.stream(f"{inputs}readings").group_by_key(strings).windowed_by(windows)
    held = readings.count(Materialized.as_("readings-per-window")).suppress(
        Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("held")
    )
    held.to_stream(_named).to(out("readings"), counted)

    meters = builder.stream(f"{inputs}meters").group_by_key(strings).windowed_by(windows)
    final = meters.emit_strategy(EmitStrategy.on_window_close()).count(Materialized.as_("meters-per-window"))
    final.to_stream(_named).to(out("meters"), counted)

    customers = builder.table(f"{inputs}customers", materialized=Materialized.as_("customers"))
    orders = builder.table(f"{inputs}orders")
    billed = orders.left_join(
        customers,
        lambda order, customer: f"{order}+{customer or 'null'}",
        foreign_key_extractor=lambda order: order.split(":")[0],
        table_joined=TableJoined.as_("billing"),
        materialized=Materialized.as_("billed"),
    )
    billed.to_stream().to(out("orders"))

    versions = Stores.persistent_versioned_key_value_store("prices", 20 * SECOND)
    prices = builder.table(f"{inputs}prices", materialized=Materialized.as_(versions))
    builder.stream(f"{inputs}sales").join(
        prices, lambda sale, price: f"{sale}@{price}", joined=Joined.as_("priced").with_grace_period(4 * SECOND)
    ).to(out("sales"))

    latest = Stores.key_value_store_builder(Stores.persistent_key_value_store("latest"), string, string)
    builder.add_state_store(latest)
    builder.stream(f"{inputs}events").process(Latest, "latest").to(out("events"))

    days = builder.stream(f"{inputs}days").group_by_key(strings)
    days = days.windowed_by(CalendarWindows.days("Europe/Berlin", 2 * HOUR))
    days.count(Materialized.as_("days")).to_stream(_named).to(out("days"), counted)

    taps = builder.stream(f"{inputs}taps").group_by_key(strings)
    recent = taps.count(Materialized.as_("recent").with_ttl(TTL, on_expiry=OnExpiry.DROP))
    recent.to_stream().to(out("taps"), counted)
    return builder.build()


def _named(key: Windowed, value: object) -> str:
    return f"{key.key}@{key.window.start}-{key.window.end}"


def settings(guarantee: str, store_format: str) -> dict[str, Any]:
    """Return the configuration that both have."""
    return {
        "processing.guarantee": guarantee,
        "dsl.store.format": store_format,
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.string(),
        "statestore.cache.max.bytes": 0,
        "penstock.emit.interval.ms": 0,
    }


def records(seed: int, base_ms: int) -> list[Input]:
    """Return the input of one seed, in the order in which each topic has it. Times begin at `base_ms`; none is twice
    in a group of topics, so that the order in which a task takes records is given."""
    chosen = random.Random(seed)
    made: list[Input] = []
    for group in GROUPS:
        unit, first = (HOUR, base_ms - _HOURS_BEFORE * HOUR) if group in HOURLY else (SECOND, base_ms)
        used: set[int] = set()
        for step, topic, _ in itertools.product(range(_STEPS), group, range(_RECORDS_PER_STEP)):
            late = chosen.choice((0, 0, 0, 0, 3, 9)) * unit
            time = first + max(0, step * unit - late) + chosen.randrange(unit)
            while time in used:
                time += 1
            used.add(time)
            key = chosen.choice("abcdef")
            headers = chosen.choice([(), (), (("h", b"1"),), (("h", b"1"), ("i", None))])
            place = partition_for(key.encode(), PARTITIONS)
            made.append(Input(topic, place, key, _value(topic, chosen), time, headers))
    return made


def _value(topic: str, chosen: random.Random) -> str | None:
    match topic:
        case "words":
            return " ".join(chosen.choices("abcdefgh", k=3))
        case "orders":
            return chosen.choice([None, *(f"{key}:{chosen.randrange(100)}" for key in "abcdefg")])
        case "customers" | "prices":
            return chosen.choice([None, "p", "q", "r", "s"])
        case "events":
            return chosen.choice("xyz")
        case _:
            return chosen.choice("0123456789")


class Output(NamedTuple):
    """A record of an output topic. timestamp: ms."""

    value: bytes | None
    timestamp: int
    headers: Headers


Row = tuple[str, bytes, Output]
"""Name of an output without the application, key, and the rest of a record."""

Outputs = Mapping[str, Mapping[bytes, list[Output]]]
"""The records of each output by their keys, in order; of those that are REORDERED the last value alone."""


def outputs(rows: Iterable[Row]) -> Outputs:
    """Return the records of outputs as they are compared."""
    found: dict[str, dict[bytes, list[Output]]] = {name: defaultdict(list) for name in OUTPUTS}
    for name, key, output in rows:
        if name in REORDERED:
            found[name][key] = [Output(output.value, 0, ())]
        elif name in FORGETFUL:
            if not (output.value or b"").endswith(b"+null"):
                found[name][key].append(output)
        else:
            found[name][key].append(output)
    return found


def expected(parts: Sequence[Sequence[Input]], config: Mapping[str, Any]) -> list[list[Row]]:
    """Return what the test driver makes of each of these parts of the input, one after the other.

    Each partition has a driver of its own, since each task has its own time; but for what is behind a repartition,
    whose last results do not depend on it.
    """
    rows: list[list[Row]] = [[] for _ in parts]
    behind = [group for group in GROUPS if set(group) & set(REORDERED)]
    before = [group for group in GROUPS if group not in (*behind, *OF_STREAM_TIME)]
    alone = [((group,), (number,)) for group in OF_STREAM_TIME for number in range(PARTITIONS)]
    for groups, partitions in ((before, (0,)), (before, (1,)), (behind, (0, 1)), *alone):
        with TopologyTestDriver(topology("", "app"), {"application.id": "app", **config}) as driver:
            for part, made in zip(parts, rows, strict=True):
                own = [each for each in part if each.partition in partitions]
                for each in itertools.chain.from_iterable(as_taken(own, group) for group in groups):
                    value = None if each.value is None else each.value.encode()
                    driver.pipe_bytes(each.topic, each.key.encode(), value, each.timestamp, each.headers)
                made += [
                    (record.topic.removeprefix("app-out-"), record.key or b"", Output(*record[3:]))
                    for record in driver.read_all_bytes()
                    if record.topic.startswith("app-out-")
                ]
    return rows


def as_taken(given: Sequence[Input], topics: Sequence[str]) -> Iterable[Input]:
    """Yield records of several topics in the order in which a task takes them: the one with the smallest time of those
    that are next in their topics."""
    queues = {topic: [each for each in reversed(given) if each.topic == topic] for topic in topics}
    while any(queues.values()):
        first = min((queue for queue in queues.values() if queue), key=lambda queue: queue[-1].timestamp)
        yield first.pop()
