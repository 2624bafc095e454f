"""Faults of Kafka Streams that Penstock does not have, for the test driver: with them it answers as Kafka does.

So a case whose answer differs for one of these reasons is told from one that differs for another. DIVERGENCES.md
describes the faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from penstock.processor import session_aggregate
from penstock.processor.api import FailureHandler, ProcessorContext, RowOrigin
from penstock.processor.columns import process_each
from penstock.processor.session_aggregate import SessionWindowAggregate, _StoredSessions
from penstock.processor.stream_join import StreamStreamOuterJoin
from penstock.record import Change, RecordBatch
from penstock.state.api import EngineKeyValueStore
from penstock.windows import SessionWindow
from tests.oracle.interpreter import case_runner
from tests.oracle.interpreter.comparison import differences

SIMULATED = (
    "a key that was read is written again to remove its entry",
    "a left or outer join has a result without a partner before the grace period is over",
)
"""The faults, as `kafka_fault` of a case says them."""


class _WaitingByReadKeys:
    """The records that wait in an outer join, removed by their keys as they were read."""

    def __init__(self, store: EngineKeyValueStore) -> None:
        self._store = store
        self.get, self.put, self.entries = store.get, store.put, store.entries
        self.deserialize_key = store.deserialize_key

    def delete_entry(self, key: bytes) -> None:
        self._store.put(self._store.deserialize_key(key), None)


class _SessionsByReadKeys(_StoredSessions):
    """The sessions of a record's key, removed by their keys as they were read."""

    def find(self, earliest_end: int, latest_start: int) -> list[tuple[SessionWindow, Any]]:
        with self._store.find_sessions(self._record.key, earliest_end, latest_start) as entries:
            found = list(entries)
        self._read = {session.window: session for session, _ in found}
        return [(session.window, aggregate) for session, aggregate in found]

    def remove(self, window: SessionWindow, aggregate: Any) -> None:
        key = self._read[window]
        self._store.remove(key)
        self._emission.updated(self._record, key, Change(None, aggregate), window.end)


_process_batch = SessionWindowAggregate.process_batch


def _process_batch_as_kafka_does(
    aggregate: SessionWindowAggregate, batch: RecordBatch, failures: FailureHandler
) -> tuple[RecordBatch, RowOrigin]:
    """Process a batch row by row where a cache is above the store: whole batches write no key that was read."""
    if aggregate._store.cached:
        return process_each(aggregate, aggregate._engine, batch, failures)
    return _process_batch(aggregate, batch, failures)


_init = StreamStreamOuterJoin.init


def _init_as_kafka_does(join: StreamStreamOuterJoin, context: ProcessorContext) -> None:
    _init(join, context)
    join._waits_ms = 0
    join._waiting = cast(Any, _WaitingByReadKeys(join._waiting))


@contextmanager
def as_kafka_does() -> Iterator[None]:
    """Within, the test driver has the faults."""
    with (
        patch.object(StreamStreamOuterJoin, "init", _init_as_kafka_does),
        patch.object(session_aggregate, "_StoredSessions", _SessionsByReadKeys),
        patch.object(SessionWindowAggregate, "process_batch", _process_batch_as_kafka_does),
    ):
        yield


def is_simulated(case: Mapping[str, Any]) -> bool:
    """Return whether `case` is marked with one of the faults."""
    fault: str = case.get("kafka_fault", "")
    return fault.startswith(SIMULATED)


def explain(case: Mapping[str, Any]) -> bool:
    """Return whether the test driver gives Kafka's answer to `case` with the faults, and only with them."""
    expected = case.get("expected", {})
    if not differences(expected, case_runner.run(case, "record")):
        return False
    with as_kafka_does():
        return not differences(expected, case_runner.run(case, "record"))
