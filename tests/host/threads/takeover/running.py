"""Runs the application of `twin` on brokers, in Java and here, and reads what it leaves there."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.rivals.java import compile_java
from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import committed_offsets
from penstock.config import StreamsConfig
from penstock.host.threads.host import ThreadsHost
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from penstock.state.changelog_format import ChangelogRecord
from tests.host.threads.support import Listening
from tests.host.threads.takeover import twin
from tests.support.kafka import SHORT_LIVED, kafka_class_path
from tests.support.plain_producer import PlainProducer
from tests.support.waiting import until

SECONDS = 240.0


class JavaTwin:
    """Applications in Java, all in one process; a context manager that ends it."""

    def __enter__(self) -> Self:
        classes = compile_java(Path(__file__).with_name("Twin.java"))
        command = ["java", *SHORT_LIVED, "-cp", f"{classes}:{kafka_class_path()}", "Twin"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End the process, with all applications in it, by SIGKILL."""
        self._process.kill()
        self._process.communicate()

    def start(self, place: Application, directory: Path, commit_interval_ms: int = 100) -> None:
        """Start an application with its state in `directory`, and wait until its tasks run."""
        settings = place.settings
        words = place.servers, str(directory), settings["processing.guarantee"], settings["dsl.store.format"].upper()
        self._command("start", place.name, *words, place.inputs, str(commit_interval_ms))
        self._wait(f"running {place.name}")

    def close(self, place: Application) -> None:
        """Close an application, whose members leave their group."""
        self._command("close", place.name)
        self._wait(f"closed {place.name}")

    def _command(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line.strip())

    def _wait(self, line: str) -> None:
        while (said := self._said.get(timeout=SECONDS)) != line:
            assert not said.startswith("failed"), said


class Application:
    """One application on a broker: its topics, and an instance of it here."""

    def __init__(self, servers: str, name: str, inputs: str, directory: Path, settings: Mapping[str, Any]) -> None:
        """Make the output topics. inputs: the prefix of the names of those that it reads."""
        self.servers, self.name, self.inputs = servers, name, inputs
        self.settings = {
            **settings,
            "application.id": name,
            "bootstrap.servers": servers,
            "state.dir": str(directory / "state"),
            "commit.interval.ms": 100,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 60_000,
            "repartition.purge.interval.ms": 86_400_000,
            "auto.offset.reset": "earliest",
        }
        self.config = StreamsConfig(self.settings)
        self.admin, self.fetcher = ConfluentAdmin(self.config), ConfluentFetcher(self.config)
        self._cluster = Cluster(self.config)
        self.admin.create_topics([NewTopic(f"{name}-out-{output}", 1) for output in twin.OUTPUTS])

    def host(self) -> ThreadsHost:
        """Return an instance, not yet started."""
        built = built_topology(twin.topology(self.inputs, self.name), self.name)
        return ThreadsHost(built, self.config)

    def run(self) -> None:
        """Process all that there is, and close."""
        host, listening = self.host(), Listening()
        host.start(listening)
        try:
            assert until(lambda: listening.ended.is_set() or self.is_done(), SECONDS)
        finally:
            assert host.close(60_000)
        if listening.error is not None:
            raise listening.error

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions of topics that the application reads or writes."""
        inputs = {self.inputs + topic for group in twin.GROUPS for topic in group}
        return [
            TopicPartition(topic, number)
            for topic, count in self.admin.topics().items()
            for number in range(count)
            if topic in inputs or topic.startswith(f"{self.name}-")
        ]

    def read(self) -> list[TopicPartition]:
        """Return the partitions that it reads."""
        ends = ("-changelog", "-out-")
        return [each for each in self.partitions() if not any(end in each.topic for end in ends)]

    def in_transaction(self) -> list[TopicPartition]:
        """Return the partitions with records of a transaction that is open."""
        partitions = self.partitions()
        ends, stable = self.admin.end_offsets(partitions), self.admin.end_offsets(partitions, read_committed=True)
        return [each for each in partitions if stable[each] != ends[each]]

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed."""
        return committed_offsets(self._cluster, self.name, self.read())

    def is_done(self) -> bool:
        """Return whether all that is there to be read was processed and committed."""
        committed = self.committed()
        partitions = self.read()
        # The offsets of a transaction may be committed before its marker is in the topics that it wrote to.
        if self.admin.end_offsets(partitions, True) != self.admin.end_offsets(partitions):
            return False
        starts = self.admin.beginning_offsets(partitions)
        starts.update({partition: each.offset for partition, each in committed.items()})
        return not any(self.records(partition, starts[partition]) for partition in partitions)

    def records(self, partition: TopicPartition, start: int = 0) -> list[ChangelogRecord]:
        """Return the committed records of a partition."""
        end = self.admin.end_offsets([partition], read_committed=True)[partition]
        if start >= end:
            return []
        return [
            ChangelogRecord(key or b"", value, timestamp, batch.headers_at(row))
            for batch in self.fetcher.fetch(partition, start, end, read_committed=True)
            for row, (key, value, timestamp) in enumerate(
                zip(batch.keys, batch.values, batch.timestamps.tolist(), strict=True)
            )
        ]

    def changelogs(self) -> dict[str, list[ChangelogRecord]]:
        """Return the records of each partition of the changelog topics, named without the application."""
        own = [each for each in self.partitions() if each.topic.endswith("-changelog")]
        return {f"{each.topic.removeprefix(self.name)}-{each.partition}": self.records(each) for each in own}

    def internal_topics(self) -> dict[str, tuple[int, dict[str, str]]]:
        """Return partitions and settings of each internal topic, named without the application."""
        names = {
            each.topic
            for each in self.partitions()
            if "-out-" not in each.topic and each.topic.startswith(f"{self.name}-")
        }
        described = [self.admin.describe_topic(name) for name in names]
        return {
            each.name.removeprefix(self.name): (
                len(each.partitions),
                {key: each.config[key] for key in sorted(each.overrides)},
            )
            for each in described
        }

    def outputs(self) -> twin.Outputs:
        """Return what it has written to its output topics."""
        written = [TopicPartition(f"{self.name}-out-{name}", 0) for name in twin.OUTPUTS]
        # a broker answers the end of a transaction before its marker is in every partition
        assert until(lambda: self.admin.end_offsets(written, True) == self.admin.end_offsets(written), SECONDS)
        return twin.outputs(
            (name, record.key, twin.Output(record.value, record.timestamp or 0, record.headers))
            for name in twin.OUTPUTS
            for record in self.records(TopicPartition(f"{self.name}-out-{name}", 0))
        )


def write(servers: str, prefix: str, given: Iterable[twin.Input]) -> None:
    """Write records to the input topics."""
    producer = PlainProducer(StreamsConfig({"application.id": "writer", "bootstrap.servers": servers}))
    for each in given:
        value = None if each.value is None else each.value.encode()
        producer.send(prefix + each.topic, each.key.encode(), value, each.partition, each.timestamp, each.headers)
    producer.close()


def make_inputs(servers: str, prefix: str) -> None:
    """Make the input topics."""
    admin = ConfluentAdmin(StreamsConfig({"application.id": "writer", "bootstrap.servers": servers}))
    admin.create_topics([NewTopic(prefix + topic, twin.PARTITIONS) for group in twin.GROUPS for topic in group])


def split(given: Sequence[twin.Input], parts: int) -> list[list[twin.Input]]:
    """Return the records in parts, each with a part of each topic."""
    topics: dict[str, list[twin.Input]] = {}
    for each in given:
        topics.setdefault(each.topic, []).append(each)
    return [
        [each for rows in topics.values() for each in rows[part * len(rows) // parts : (part + 1) * len(rows) // parts]]
        for part in range(parts)
    ]


def split_as_taken(given: Sequence[twin.Input], parts: int) -> list[list[twin.Input]]:
    """Return the records in parts, each with what tasks take after the one before: tasks take the records in the same
    order, whether they have all parts at once or one after the other."""
    made: list[list[twin.Input]] = [[] for _ in range(parts)]
    for group, partition in itertools.product(twin.GROUPS, range(twin.PARTITIONS)):
        rows = list(twin.as_taken([each for each in given if each.partition == partition], group))
        for part, own in enumerate(made):
            own += rows[part * len(rows) // parts : (part + 1) * len(rows) // parts]
    return made


RECORDED = Path(__file__).with_name("java.json")
"""What the application in Java has left on its broker behind the first half of the input."""
VERSIONED = "-prices-changelog"
EXPIRING = "-recent-changelog"
SEED = 4
"""Of the input that was recorded."""
VARIANTS = (("at_least_once", "default"), ("exactly_once_v2", "headers"))


def record(servers: str, java: JavaTwin, directory: Path, file: Path) -> None:
    """Let the application in Java process the first half of the input, and write to `file` what it leaves: settings of
    its topics, what compaction leaves of its changelogs, its committed offsets."""
    base_ms = now_ms()
    found: dict[str, Any] = {"base_ms": base_ms}
    for guarantee, store_format in VARIANTS:
        inputs = f"{store_format}-in-"
        make_inputs(servers, inputs)
        write(servers, inputs, split(twin.records(SEED, base_ms), 2)[0])
        settings = twin.settings(guarantee, store_format)
        place = Application(servers, f"{store_format}-app", inputs, directory / store_format, settings)
        java.start(place, directory / store_format)
        assert until(place.is_done, SECONDS)
        java.close(place)
        found[store_format] = {
            "topics": place.internal_topics(),
            "changelogs": {
                name: [as_json(each) for each in compacted(name, rows)] for name, rows in place.changelogs().items()
            },
            "committed": sorted(
                [*partition, each.offset, each.metadata] for partition, each in place.committed().items()
            ),
        }
    lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
    file.write_text("{" + ",\n".join(lines) + "}\n")


def now_ms() -> int:
    """Return a time for the first record: topics keep records for a limited time, and take none of the future."""
    return (int(time.time()) - 180) // 60 * 60_000


def compacted(name: str, rows: Sequence[ChangelogRecord]) -> list[ChangelogRecord]:
    """Return what compaction leaves of a changelog: the last record of each key, in order; all of a versioned store,
    whose records are not compacted as long as it needs them."""
    if VERSIONED in name:
        return list(rows)
    return [rows[at] for at in sorted({record.key: at for at, record in enumerate(rows)}.values())]


def unexpired(name: str, rows: Sequence[ChangelogRecord]) -> list[ChangelogRecord]:
    """Return the entries of a changelog that have not expired at its latest time: expired ones are deleted sooner or
    later, and in Java never."""
    if EXPIRING not in name:
        return list(rows)
    times = [row.timestamp or 0 for row in rows if row.value is not None]
    return [row for row in rows if row.value is not None and (row.timestamp or 0) + twin.TTL > max(times)]


def as_json(record: ChangelogRecord) -> list[Any]:
    """Return a record as JSON has it: bytes in hexadecimal digits."""
    headers = [[name, None if value is None else value.hex()] for name, value in record.headers]
    value = None if record.value is None else record.value.hex()
    return [record.key.hex(), value, record.timestamp, headers]


def from_json(row: Sequence[Any]) -> ChangelogRecord:
    """Return a record that JSON has."""
    key, value, timestamp, headers = row
    return ChangelogRecord(
        bytes.fromhex(key),
        None if value is None else bytes.fromhex(value),
        timestamp,
        tuple((name, None if own is None else bytes.fromhex(own)) for name, own in headers),
    )
