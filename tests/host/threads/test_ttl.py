"""Stores with a time to live whose task begins with an empty disk: it restores entries, renewals and stream time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Materialized, Topology
from penstock.testing import TopologyTestDriver
from tests.host.support import InputRecord
from tests.host.test_ttl import SETTINGS, carts, visited_carts
from tests.host.threads.runner import ThreadsRunner

pytestmark = pytest.mark.one_broker

VISITS = (
    [("ann", 0), ("bob", 0), ("ann", 8_000)],  # the last one renews
    [("bob", 3_000), ("ann", 17_000), ("bob", 17_000)],
    [("bob", 16_999), ("ann", 26_999), ("cid", 28_000), ("bob", 28_000)],
)
CHANGES = (
    [("ann", 0), ("bob", 4_000), ("cid", 9_000)],
    [("dan", 2_000), ("eve", 10_000), ("bob", 12_000)],  # no record advances the clock before the second one
    [("fay", 21_000)],
)


def records(rows: list[tuple[str, int]]) -> list[InputRecord]:
    return [InputRecord(key.encode(), b"tea", time) for key, time in rows]


def undisturbed(topology: Topology, source: str, target: str, parts: tuple[list[tuple[str, int]], ...]) -> list[Any]:
    """Return the output of the test driver for all parts."""
    with TopologyTestDriver(topology, {**SETTINGS, "application.id": "undisturbed"}) as driver:
        for each in (record for rows in parts for record in records(rows)):
            driver.pipe_bytes(source, each.key, each.value, each.timestamp, ())
        return [(each.key, each.value, each.timestamp) for each in driver.read_all_bytes() if each.topic == target]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize(
    ("program", "parts"),
    [
        (lambda source, target: visited_carts(source, target, caching=False), VISITS),
        (lambda source, target: carts(source, target, Materialized.as_("carts").with_ttl(10_000)), CHANGES),
    ],
    ids=["a store that reads renew", "a table"],
)
def test_a_task_without_its_state_forgets_what_it_would_have_forgotten(
    threads_runner: ThreadsRunner,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    program: Callable[[str, str], Topology],
    parts: tuple[list[tuple[str, int]], ...],
    guarantee: str,
) -> None:
    application, source, target = unique_name("app"), unique_name("in"), unique_name("out")
    threads_runner.create_topics({source: 1, target: 1})
    topology = program(source, target)
    for number, rows in enumerate(parts):
        threads_runner.write(source, records(rows))
        values = {**SETTINGS, "state.dir": str(tmp_path / str(number)), "processing.guarantee": guarantee}
        running = threads_runner.program(topology, threads_runner.config(application, values))
        try:
            running.run_to_end()
        finally:
            running.close()
    found = [(record.key, record.value, record.timestamp) for record in threads_runner.read(target)]
    assert sorted(found) == sorted(undisturbed(topology, source, target, parts))
