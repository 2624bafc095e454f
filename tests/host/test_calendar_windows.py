"""Days of a calendar on each host: updates, final results and reads of the store have the ends of the calendar, also
after a restart."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from penstock import (
    BufferConfig,
    CalendarWindows,
    Consumed,
    EmitStrategy,
    Materialized,
    Produced,
    QueryableStoreTypes,
    Serdes,
    StateQueryRequest,
    StoreQueryParameters,
    StreamsBuilder,
    Suppressed,
    Topology,
    Windowed,
    WindowRangeQuery,
)
from tests.host.support import WITH_PROCESSES, InputRecord, Program, Runner

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker]

TEXT = Serdes.string()
BERLIN = ZoneInfo("Europe/Berlin")
DAYS = CalendarWindows.days(BERLIN, timedelta(hours=1))


def ms(*parts: int) -> int:
    """Return a local time of Berlin in ms since the epoch."""
    return round(datetime(*parts, tzinfo=BERLIN).timestamp()) * 1000  # type: ignore[arg-type, misc]  # parts are numbers


def shown(windowed: Windowed[str]) -> str:
    """Return the key and the day, with its length in hours."""
    window = windowed.window
    day = datetime.fromtimestamp(window.start / 1000, BERLIN).date()
    return f"{windowed.key} {day} {(window.end - window.start) // 3_600_000} h"


def days(source: str, target: str) -> Topology:
    """Counts by day: each update, and final results by both ways."""
    builder = StreamsBuilder()
    windowed = builder.stream(source, Consumed.with_(TEXT, TEXT)).group_by_key().windowed_by(DAYS)
    counts = windowed.count(Materialized.as_("days").with_key_serde(TEXT).with_retention(timedelta(days=365)))
    closing = builder.stream(f"{source}-2", Consumed.with_(TEXT, TEXT)).group_by_key().windowed_by(DAYS)
    tables = {
        "update": counts,
        "suppressed": counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())),
        "final": closing.emit_strategy(EmitStrategy.on_window_close()).count(
            Materialized.as_("final").with_retention(timedelta(days=365))
        ),
    }
    for name, table in tables.items():
        texts = table.to_stream().map(lambda key, count, name=name: (name, f"{shown(key)}: {count}"))
        texts.to(target, Produced.with_(TEXT, TEXT))
    return builder.build()


@pytest.fixture
def names(runner: Runner, unique_name: Callable[[str], str]) -> tuple[str, str]:
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics({source: 1, f"{source}-2": 1, target: 1})
    return source, target


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_days_have_their_lengths_in_results_and_reads_across_a_restart(
    runner: Runner, start: Callable[..., Program], application: str, names: tuple[str, str], execution: str
) -> None:
    source, target = names
    values: dict[str, Any] = {"penstock.emit.interval.ms": 0, "penstock.execution": execution}
    config = runner.config(application, {**values, "penstock.query.refresh.ms": 0})
    program = start(days(source, target), config)

    def seen_after(*times: int) -> dict[str, list[str]]:
        """Return the output of these records, after a restart."""
        before = len(runner.read(target))
        for topic in (source, f"{source}-2"):
            runner.write(topic, [InputRecord(b"k", b"v", time) for time in times])
        program.run_to_end()
        program.restart()
        found: dict[str, list[str]] = {}
        for record in runner.read(target)[before:]:
            found.setdefault((record.key or b"").decode(), []).append((record.value or b"").decode())
        return {name: sorted(values)[-1:] if name == "update" else values for name, values in found.items()}

    assert seen_after(ms(2024, 3, 31, 0), ms(2024, 3, 31, 23)) == {"update": ["k 2024-03-31 23 h: 2"]}
    assert seen_after(ms(2024, 3, 31, 12), ms(2024, 4, 1, 1)) == {
        "update": ["k 2024-04-01 24 h: 1"],
        "suppressed": ["k 2024-03-31 23 h: 3"],
        "final": ["k 2024-03-31 23 h: 3"],
    }
    assert seen_after(ms(2024, 10, 27, 23)) == {
        "update": ["k 2024-10-27 25 h: 1"],
        "suppressed": ["k 2024-04-01 24 h: 1"],
        "final": ["k 2024-04-01 24 h: 1"],
    }
    program.run_to_end()
    expected = [(ms(2024, 3, 31), ms(2024, 4, 1), 3), (ms(2024, 4, 1), ms(2024, 4, 2), 1)]
    expected.append((ms(2024, 10, 27), ms(2024, 10, 28), 1))
    state = program.queries()
    store = state.store(StoreQueryParameters.from_name_and_type("days", QueryableStoreTypes.window_store()))
    with store.all() as entries:
        assert [(key.window.start, key.window.end, count) for key, count in entries] == expected
    assert store.fetch("k", ms(2024, 10, 27)) == 1
    query = WindowRangeQuery.with_window_start_range(ms(2024, 10, 1), ms(2024, 11, 1))
    (partition,) = state.query(StateQueryRequest.in_store("days").with_query(query)).partition_results.values()
    with partition.result as found:
        assert [shown(key) for key, _ in found] == ["k 2024-10-27 25 h"]
