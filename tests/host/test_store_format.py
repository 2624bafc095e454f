"""Applications whose `dsl.store.format` changes between runs, on each host: each store goes on with its content."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    BufferConfig,
    Consumed,
    JoinWindows,
    KStream,
    Materialized,
    Processor,
    ProcessorContext,
    QueryableStoreTypes,
    Record,
    Serdes,
    SessionWindows,
    StoreQueryParameters,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    ValueAndTimestamp,
    Windowed,
)
from penstock.errors import StreamsError
from penstock.host.open import open_durable_state
from penstock_broker.common.clock import SystemClock
from tests.host.support import InputRecord, Runner

pytestmark = pytest.mark.one_broker

TEXT = Serdes.string()
STORES = ("table", "windows", "sessions", "final", "versions", "remembered")
"""The stores whose entries say nothing about the formats before. Those of the join and of `suppress` read both."""

FORMATS = ("default", "headers")
SETTINGS: dict[str, Any] = {
    "default.key.serde": TEXT,
    "default.value.serde": TEXT,
    "auto.offset.reset": "earliest",
}


class Remember(Processor):
    """Writes the last two values of each key into a store with headers by its builder."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.kept: Any = context.get_state_store("remembered")

    def process(self, record: Record[str, str]) -> None:
        found = self.kept.get(record.key)
        before = "" if found is None else found.value
        self.kept.put(record.key, ValueAndTimestamp(record.value, record.timestamp))
        self.context.forward(record.with_value(f"{before} then {record.value}"))


def shown(windowed: Windowed[str], value: Any) -> tuple[str, str]:
    return windowed.key, f"{value} in {windowed.window.start} to {windowed.window.end}"


def joined(before: str, value: str) -> str:
    return f"{before}+{value}"


def program(source: str, target: str, extra: bool = False) -> Topology:
    """Return a program with a store of each kind in one task. extra: with another operator before its stores."""
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream(source, Consumed.with_(TEXT, TEXT))
    stream = stream.filter(lambda key, value: True) if extra else stream
    grouped = stream.group_by_key()
    windowed = grouped.windowed_by(TimeWindows.of_size_and_grace(100, 50))
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(50, 20))
    final = windowed.reduce(joined, Materialized.as_("final"))
    by_builder = Stores.persistent_timestamped_key_value_store_with_headers("remembered")
    builder.add_state_store(Stores.timestamped_key_value_store_with_headers_builder(by_builder, TEXT, TEXT))
    versions = Materialized.as_(Stores.persistent_versioned_key_value_store("versions", 1_000))
    join = StreamJoined.with_(TEXT, TEXT, TEXT).with_name("join").with_store_name("join")
    results: Sequence[KStream[str, str]] = (
        grouped.reduce(joined, Materialized.as_("table")).to_stream(),
        windowed.reduce(joined, Materialized.as_("windows")).to_stream().map(shown),
        sessions.reduce(joined, Materialized.as_("sessions")).to_stream().map(shown),
        final.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("held"))
        .to_stream()
        .map(shown),
        stream.join(stream.to_table(materialized=versions), joined),
        stream.process(Remember, "remembered"),
        stream.join(
            stream.map_values(str.upper), joined, JoinWindows.of_time_difference_with_no_grace(60), stream_joined=join
        ),
    )
    for each in results:
        each.to(target)
    return builder.build()


START = SystemClock().milliseconds() // 1_000 * 1_000
"""The time (ms) of the first record: versions of long ago would leave their changelog at once."""


def named(source: str, names: str, target: str) -> Topology:
    """Return a program that joins a stream with a global table."""
    builder, consumed = StreamsBuilder(), Consumed.with_(TEXT, TEXT)
    table = builder.global_table(names, consumed, Materialized.as_("names"))
    builder.stream(source, consumed).join(table, joined, key_selector=lambda key, value: key).to(target)
    return builder.build()


PLAIN = Stores.persistent_key_value_store("s")
"""The supplier of a store that keeps no timestamps."""


def reduced(source: str, target: str, store: Any) -> Topology:
    """Return a program with a table in a store of this name or supplier."""
    builder = StreamsBuilder()
    grouped = builder.stream(source, Consumed.with_(TEXT, TEXT)).group_by_key()
    grouped.reduce(joined, Materialized.as_(store)).to_stream().to(target)
    return builder.build()


def part(number: int) -> list[InputRecord]:
    """Return a part of the input: keys of every part, in windows and sessions that reach into the next part."""
    at = number * 40
    return [
        InputRecord(key, b"%s%d" % (key, at + place), START + at + place, headers=(("n", b"%d" % (at + place)),))
        for place, key in ((0, b"a"), (5, b"b"), (10, b"%d" % number), (30, b"a"))
    ]


class Application:
    """An application that runs one part of its input after another, each with a format."""

    def __init__(self, runner: Runner, name: str, source: str, target: str) -> None:
        self._runner, self._name, self.source, self.target = runner, name, source, target

    def config(self, store_format: str, **settings: Any) -> Any:
        return self._runner.config(self._name, {**SETTINGS, "dsl.store.format": store_format, **settings})

    def run(self, store_format: str, extra: bool = False, **settings: Any) -> None:
        """Run to the end of the input."""
        running = self._runner.program(program(self.source, self.target, extra), self.config(store_format, **settings))
        try:
            running.run_to_end()
        finally:
            running.close()

    def stores(self, store_format: str) -> dict[str, dict[bytes, bytes]]:
        return {name: self._runner.store(self.config(store_format), name) for name in STORES}

    def table(self, store_format: str) -> dict[str, str] | str:
        """Return the entries of the table while nothing runs, or the error of a program with this format."""
        wanted = StoreQueryParameters.from_name_and_type("table", QueryableStoreTypes.key_value_store())
        with open_durable_state(program(self.source, self.target), self.config(store_format)) as state:
            try:
                return dict(state.store(wanted).all())
            except StreamsError as error:
                return str(error)

    def output(self) -> list[tuple[Any, ...]]:
        return [(each.key, each.value, each.timestamp) for each in self._runner.read(self.target)]


def makes_applications(
    runner: Runner, unique_name: Callable[[str], str], partitions: int
) -> Callable[[str], Application]:
    """Return a function that makes applications, which read one topic of so many partitions."""
    source = unique_name("in")
    runner.create_topics({source: partitions})

    def made(name: str) -> Application:
        target = unique_name("out")
        runner.create_topics({target: 1})
        return Application(runner, unique_name(name), source, target)

    return made


@pytest.fixture
def application_of(runner: Runner, unique_name: Callable[[str], str]) -> Callable[[str], Application]:
    """Makes applications that read one topic."""
    return makes_applications(runner, unique_name, 1)


@pytest.mark.parametrize("formats", [(*FORMATS, FORMATS[0]), (*FORMATS[::-1], FORMATS[1])], ids="-".join)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_each_store_goes_on_in_another_format(
    runner: Runner, application_of: Callable[[str], Application], formats: tuple[str, ...], guarantee: str
) -> None:
    changing, lasting = application_of("changing"), application_of("lasting")
    settings = {"processing.guarantee": guarantee}
    for number, store_format in enumerate(formats):
        runner.write(changing.source, part(number))
        changing.run(store_format, extra=number == 2, **settings)
        lasting.run(formats[-1], **settings)
    assert changing.stores(formats[-1]) == lasting.stores(formats[-1])
    assert all(changing.stores(formats[-1]).values())
    found = changing.output()
    assert found == lasting.output()
    assert len(found) > 50


@pytest.mark.parametrize("formats", [FORMATS, FORMATS[::-1]], ids="-".join)
def test_each_store_goes_on_in_another_format_after_a_kill(
    runner: Runner, application_of: Callable[[str], Application], formats: tuple[str, str]
) -> None:
    changing, lasting = application_of("changing"), application_of("lasting")
    directory = Path(changing.config("default")["state.dir"])
    copy = directory.with_name(f"{directory.name}-{changing.target}")
    settings = {"processing.guarantee": "exactly_once_v2", "state.dir": str(copy)}
    runner.write(changing.source, part(0))
    running = runner.program(program(changing.source, changing.target), changing.config(formats[0], **settings))
    try:
        running.run_to_end()
        shutil.copytree(copy, killed := copy.with_name(f"{copy.name}-killed"))
    finally:
        running.close()
    shutil.rmtree(copy)
    killed.rename(copy)
    runner.write(changing.source, part(1))
    changing.run(formats[1], **settings)
    lasting.run(formats[1], **settings)
    assert changing.output() == lasting.output()


def test_the_state_of_a_stopped_application_is_read_in_its_format_or_not_at_all(
    runner: Runner, application_of: Callable[[str], Application]
) -> None:
    application = application_of("stopped")
    runner.write(application.source, part(0))
    application.run("headers")
    expected = {"a": "a0+a30", "b": "b5", "0": "010"}
    assert application.table("headers") == expected
    found = application.table("default")
    if isinstance(found, str):
        assert re.search("Store table of .* with headers .*, and timestamped_key_value in the program", found)
    else:
        assert found == expected


@pytest.mark.parametrize("formats", [FORMATS, FORMATS[::-1]], ids="-".join)
def test_global_stores_are_read_in_another_format(
    runner: Runner, unique_name: Callable[[str], str], formats: tuple[str, str]
) -> None:
    source, names, target = topics = [unique_name(topic) for topic in ("in", "names", "out")]
    runner.create_topics(dict.fromkeys(topics, 1))
    topology, name = named(source, names, target), unique_name("app")
    runner.write(names, [InputRecord(b"a", b"Ada", START)])
    for number, store_format in enumerate(formats):
        runner.write(source, [InputRecord(b"a", b"%d" % number, START + number)])
        running = runner.program(topology, runner.config(name, {**SETTINGS, "dsl.store.format": store_format}))
        try:
            running.run_to_end()
        finally:
            running.close()
    assert [each.value for each in runner.read(target)] == [b"0+Ada", b"1+Ada"]
