"""Windows of n records on each host: results and open windows across restarts, and a changed n."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Consumed,
    CountWindow,
    Materialized,
    Produced,
    QueryableStoreTypes,
    Serdes,
    StoreQueryParameters,
    StreamsBuilder,
    Topology,
    aggregations,
)
from tests.host.support import WITH_PROCESSES, InputRecord, Program, Runner

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker]

TEXT = Serdes.string()


def windows(source: str, target: str, n: int) -> Topology:
    """Write the texts, and the mean size, of windows of `n` records."""
    builder = StreamsBuilder()
    of_n = builder.stream(source, Consumed.with_(TEXT, TEXT)).group_by_key().count_windows(n)
    of_n.reduce(lambda known, value: known + value, Materialized.as_("texts")).to(target, Produced.with_(TEXT, TEXT))
    means = of_n.aggregate(aggregations.mean(len), materialized=Materialized.as_("means"))
    means.map_values(str).to(target, Produced.with_(TEXT, TEXT))
    return builder.build()


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_open_windows_survive_restarts_and_another_n(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    unique_name: Callable[[str], str],
    execution: str,
) -> None:
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics({source: 2, target: 2})
    values: dict[str, Any] = {"penstock.query.refresh.ms": 0, "penstock.execution": execution}
    program = start(windows(source, target, 3), runner.config(application, values))

    def seen_after(*texts: str) -> dict[str, list[str]]:
        """Return the output for these texts, whose keys are their first letters, after a restart."""
        before = len(runner.read(target))
        runner.write(source, [InputRecord(text[:1].encode(), text.encode(), 0, ord(text[0]) % 2) for text in texts])
        program.run_to_end()
        program.restart()
        found: dict[str, list[str]] = {}
        for record in runner.read(target)[before:]:
            found.setdefault((record.key or b"").decode(), []).append((record.value or b"").decode())
        return {key: sorted(values) for key, values in found.items()}

    assert seen_after("a", "aa", "b") == {}
    assert seen_after("aaa", "a", "b") == {"a": ["2.0", "aaaaaa"]}
    assert seen_after("bbbb") == {"b": ["2.0", "bbbbbb"]}
    program.run_to_end()
    kind = QueryableStoreTypes.key_value_store()
    store = program.queries().store(StoreQueryParameters.from_name_and_type("texts", kind))
    with store.all() as entries:
        assert sorted((key, window) for key, window in entries) == [
            ("a", CountWindow(1, False, "a")),
            ("b", CountWindow(3, True, "bbbbbb")),
        ]
    program.change(windows(source, target, 2))
    assert seen_after("aa", "b") == {"a": ["1.5", "aaa"]}
    program.change(windows(source, target, 3))
    assert seen_after("bb", "bbb") == {"b": ["2.0", "bbbbbb"]}
