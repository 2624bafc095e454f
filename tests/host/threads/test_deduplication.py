"""Deduplication whose task begins with an empty disk: it restores its store from the changelog, and its stream time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Consumed, Deduplicated, Serdes, StreamsBuilder, Topology
from tests.host.support import InputRecord
from tests.host.threads.runner import ThreadsRunner

pytestmark = pytest.mark.one_broker

STRING = Serdes.string()


def unique(prefix: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(f"{prefix}-in", Consumed.with_(STRING, STRING))
    ids = Deduplicated(id_serde=STRING, name="once")
    stream.deduplicate_by_key_value(lambda key, value: value, 100, ids).to(f"{prefix}-out")
    return builder.build()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_task_without_its_state_knows_the_records_of_before(
    threads_runner: ThreadsRunner, unique_name: Callable[[str], str], tmp_path: Path, guarantee: str
) -> None:
    prefix = unique_name(guarantee)
    threads_runner.create_topics({f"{prefix}-in": 1, f"{prefix}-out": 1})
    for disk, rows in (
        ("one", [(b"a", 0), (b"b", 150), (b"c", 200)]),
        ("two", [(b"b", 250), (b"c", 201), (b"a", 60), (b"c", 301)]),
    ):
        threads_runner.write(f"{prefix}-in", [InputRecord(b"k", value, time) for value, time in rows])
        values = {"state.dir": str(tmp_path / disk), "processing.guarantee": guarantee}
        program = threads_runner.program(unique(prefix), threads_runner.config(prefix, values))
        try:
            program.run_to_end()
        finally:
            program.close()
    found = [(record.value, record.timestamp) for record in threads_runner.read(f"{prefix}-out")]
    # stream time has passed the end of the interval of `a`, although its record is not later than that end
    assert found == [(b"a", 0), (b"b", 150), (b"c", 200), (b"a", 60), (b"c", 301)]
