"""One system answers one query: from the start of its program to the last row, in a process of its own.

Every system reads the same topic and writes its rows to a topic whose timestamps are those of the broker. The window
opens when a share of the events is read and committed, and closes with the last row of the result, so that no start of
a JVM is in a rate. Rows are checked elsewhere, after the run.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring import StalledError, cpu_seconds_of, descendants
from benchmarks.nexmark.programs import programs
from benchmarks.nexmark.queries import INPUT, OUTPUT, QUERIES, SIDE_INPUT
from benchmarks.nexmark.systems import HEAP, SYSTEMS
from benchmarks.on_spark import application, records_read
from benchmarks.rivals.java import compile_java
from benchmarks.rivals.nexmark_job import Job
from benchmarks.topics import PARTITIONS, client_config, delete_topics_of
from penstock import StreamsBuilder
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.record import TopicPartition
from tests.support.kafka import kafka_class_path

WARM_SHARE: Final = 0.3
"""Share of the events after which the window opens."""

_JAVA: Final = Path(__file__).parents[1] / "rivals" / "NexmarkBenchmark.java"
_LOOK_SECONDS: Final = 0.25
_QUIET_SECONDS: Final = 4.0
_STALLED_SECONDS: Final = 180.0


def measure_penstock(bootstrap: str, query: str, events: int, guarantee: str, host: str) -> dict[str, Any]:
    """Answer a query with Penstock on a host, "spark" or "threads"."""
    builder = StreamsBuilder()
    QUERIES[query].build(builder)
    config: dict[str, Any] = {"processing.guarantee": guarantee, "penstock.host": host, "auto.offset.reset": "earliest"}
    if host == "threads":
        config["num.stream.threads"] = PARTITIONS
    name = _application(query)
    with application(builder.build(), bootstrap, name, **config) as streams, _offsets(bootstrap, name) as rows:
        streams.start()
        return _watched(lambda: records_read(streams), rows, events, os.getpid())


def measure_java(bootstrap: str, query: str, events: int, guarantee: str) -> dict[str, Any]:
    """Answer a query with Kafka Streams in Java."""
    class_path = f"{compile_java(_JAVA)}{os.pathsep}{kafka_class_path()}"
    name = _application(query)
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory, _offsets(bootstrap, name) as rows:
        arguments = [name, bootstrap, directory, guarantee, str(PARTITIONS), query]
        command = ["java", f"-Xmx{HEAP}", "-cp", class_path, "NexmarkBenchmark", *arguments]
        with programs([command], Path(directory)) as running:
            return _watched(lambda: running.at_work(rows.committed), rows, events, *running.pids)


def measure_rival(bootstrap: str, query: str, events: int, guarantee: str, system: str) -> dict[str, Any]:
    """Answer a query with a rival that has a program of its own (`systems.py`)."""
    program = SYSTEMS[system].program
    assert program is not None
    name = _application(query)
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory, _offsets(bootstrap, name) as rows:
        job = Job(query, bootstrap, INPUT, SIDE_INPUT, OUTPUT, name, directory, guarantee, PARTITIONS, events)
        jobs = [replace(job, process=number) for number in range(program.processes)]
        commands = [[*program.command(), json.dumps(asdict(each))] for each in jobs]
        with programs(commands, Path(directory)) as running:

            def progress() -> int:
                committed = running.at_work(rows.committed)
                return max(min(committed, events - 1), running.reported()) if program.reports else committed

            return _watched(progress, rows, events, *running.pids)


class _Offsets:
    """The ends of the topic of rows, and the offsets of events that a group has committed."""

    def __init__(self, admin: ConfluentAdmin, group: str) -> None:
        self._admin = admin
        self._group = group
        self._events = [TopicPartition(INPUT, partition) for partition in range(PARTITIONS)]
        self._rows = [TopicPartition(OUTPUT, partition) for partition in range(PARTITIONS)]

    def committed(self) -> int:
        """Return how many events the group has committed."""
        committed = self._admin.committed_offsets(self._group, self._events)
        return sum(offset.offset for offset in committed.values())

    def ends(self) -> int:
        """Return how far the topic of rows goes."""
        return sum(self._admin.end_offsets(self._rows).values())


def _application(query: str) -> str:
    """Return an application id that no run before has committed offsets of."""
    return f"benchmark-nexmark-{query}-{secrets.token_hex(4)}"


@contextmanager
def _offsets(bootstrap: str, group: str) -> Iterator[_Offsets]:
    admin = ConfluentAdmin(client_config(bootstrap))
    try:
        yield _Offsets(admin, group)
    finally:
        admin.close()
        delete_topics_of(bootstrap, group)


def _watched(progress: Callable[[], int], rows: _Offsets, events: int, *roots: int) -> dict[str, Any]:
    """Wait until all events are read and no more rows come; return what the window needs.

    `opened` and `finished` are in seconds since 1970, `memory` is the largest in bytes.
    """
    opened: tuple[float, int, float | None] | None = None
    done, end, memory = 0, -1, 0
    moved, cpu = time.monotonic(), cpu_seconds_of([*roots])
    finished = time.time()
    while done < events or time.monotonic() - moved < _QUIET_SECONDS:
        before = done, end
        done, end = progress(), rows.ends()
        if (done, end) != before:
            moved, cpu, finished = time.monotonic(), cpu_seconds_of([*roots]), time.time()
            memory = max(memory, memory_of(roots))
        if opened is None and done >= WARM_SHARE * events:
            opened = time.time(), done, cpu
        if time.monotonic() - moved > _STALLED_SECONDS:
            raise StalledError(f"no progress for {_STALLED_SECONDS:.0f} s, {done} of {events} events read")
        time.sleep(_LOOK_SECONDS)
    if opened is None or opened[1] >= events:
        raise StalledError(f"all {events} events were one step of progress: give more --events")
    at, warm, cpu_at = opened
    used = None if cpu is None or cpu_at is None else cpu - cpu_at
    return {"opened": at, "finished": finished, "events": events - warm, "cpu_seconds": used, "memory": memory}


def memory_of(roots: Sequence[int]) -> int:
    """Return the resident memory (bytes) of processes and their descendants."""
    pages = 0
    for pid in {pid for root in roots for pid in descendants(root)}:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue  # it has ended since
    return pages * os.sysconf("SC_PAGE_SIZE")
