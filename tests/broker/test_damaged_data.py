"""A start with files that are torn, changed or gone: what it serves was acknowledged, or it says what is missing.

One data directory with transactions, groups and a compacted topic is written, then damaged at random, by seed:
`PENSTOCK_CRASH=all` for many seeds.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock_broker.batch import InvalidBatchError, check_intact, read_header
from penstock_broker.common.clock import MockClock
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.groups.coordinator import GroupCoordinator
from penstock_broker.groups.offsets import CommittedOffset
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.offset_index import SUMMARY_SIZE, InvalidIndexError, unpack_summary
from penstock_broker.partition import Partition
from penstock_broker.producer_ids import ProducerIds
from penstock_broker.records import LogRecord, encode_records, encode_transactional_records, read_records
from penstock_broker.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicRegistry
from penstock_broker.transaction_log import TransactionLog
from penstock_broker.transactions import TransactionCoordinator
from tests.broker.test_restart import force_to_disk
from tests.support.manual_timers import ManualTimers

ALL = os.environ.get("PENSTOCK_CRASH") == "all"
SEEDS = range(2_000) if ALL else range(20)
pytestmark = [pytest.mark.crash] if ALL else []
GROUPS = ("g", "h")
CHECKSUMMED_FROM = 17
"""What lies before it in a batch no checksum covers, in Kafka neither."""

NEW = (b"new", b"value")

Record = tuple[bytes | None, bytes | None]


class Broker:
    """The parts of a broker that keep data, without sockets.

    Args:
        directory: its data directory.
    """

    def __init__(self, directory: Path) -> None:
        clock = MockClock(1_700_000_000_000)
        self.config = BrokerConfig(data_dir=directory)
        self.store = MetadataStore(directory / "metadata.sqlite")
        try:
            self.topics = TopicRegistry(self.config, self.store, clock)
            self.ends = {name_of(partition): partition.end_offset for partition in self.partitions()}
            """Ends of the logs before the broker makes good for transactions that lost their state."""
            self.groups = GroupCoordinator(self.config, self.topics, ManualTimers(clock), clock)
            self.transactions = TransactionCoordinator(
                self.config,
                TransactionLog(self.topics),
                self.topics,
                self.groups.offsets,
                ProducerIds(self.store, lambda: -1).draw,
                clock,
            )
        except BaseException:
            self.store.close()
            raise

    def partitions(self) -> list[Partition]:
        return [partition for topic in self.topics.all() for partition in topic.partitions]

    def close(self) -> None:
        self.topics.close()
        self.store.close()


@dataclass
class Written:
    """What was acknowledged.

    Args:
        stopped: a data directory after a clean stop.
        killed: the same after a kill.
    """

    stopped: Path
    killed: Path
    topics: dict[str, str] = field(default_factory=dict)
    """Names of topics by the names of their directories."""
    records: dict[str, dict[int, Record]] = field(default_factory=dict)
    """Records by the name of the partition and their offsets, as they were served before the end."""
    commits: dict[str, list[int]] = field(default_factory=dict)
    """Committed offsets by group, the last one counts."""


def name_of(partition: Partition) -> str:
    return f"{partition.topic}-{partition.index}"


def served(partition: Partition) -> tuple[dict[int, Record], bool]:
    """Return the records that a consumer reads, and whether it or the broker noticed damage."""
    found: dict[int, Record] = {}
    offset = partition.start_offset
    while offset < partition.end_offset:
        try:
            data = memoryview(partition.read(offset, 400))
        except ApiError:
            return found, True
        if not data:
            return found, False
        while data:
            try:
                header = check_intact(data)
            except ApiError:
                return found, True
            if not header.is_control:
                found |= {record.offset: (record.key, record.value) for record in read_records(data)}
            data, offset = data[header.size :], max(header.next_offset, offset + 1)
    return found, False


def append(broker: Broker, topic: str, index: int, *records: Record) -> None:
    batch = encode_records([LogRecord(at, 1_000, *record) for at, record in enumerate(records)])
    broker.topics.partition(topic, index).append(memoryview(batch))


def in_transaction(broker: Broker, topic: str, record: Record, is_commit: bool) -> None:
    producer = broker.transactions.init_producer_id("x", 60_000, None)
    broker.transactions.add_partitions("x", producer, [(topic, 0)], 0)
    batch = encode_transactional_records([LogRecord(0, 1_000, *record)], *producer)
    broker.topics.partition(topic, 0).append_own(memoryview(batch))
    broker.transactions.end("x", producer, is_commit, 0)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    made = Written(tmp_path_factory.mktemp("data") / "stopped", tmp_path_factory.mktemp("data") / "killed")
    made.stopped.mkdir()
    broker = Broker(made.stopped)
    small = {"internal.segment.bytes": "400", "index.interval.bytes": "0"}
    broker.topics.create("plain", 2, small)
    broker.topics.create("compacted", 1, small | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    for number in range(16):
        value = b"%d " % number * 20
        append(broker, "plain", 0, *[(b"k", value)] * (number % 3 + 1))
        append(broker, "plain", 1, (None, value))
        append(broker, "compacted", 0, (b"key %d" % (number % 3), value), (b"key %d" % (number % 4), value))
        for topic in ("plain", "compacted") if number % 4 == 0 else ():
            in_transaction(broker, topic, (b"t", value), is_commit=number % 8 == 0)
        for group in GROUPS:
            offset = CommittedOffset(number, -1, "", 1_700_000_000_000)
            broker.groups.check_commit(group, "", None, -1, 9, {("plain", 0): offset})
            broker.groups.offsets.commit(group, {("plain", 0): offset})
            made.commits.setdefault(group, []).append(number)
        if number == 10:
            for _ in broker.topics.partition("compacted", 0).clean(1 << 20, 0):
                pass
            for partition in broker.partitions():
                force_to_disk(partition)
    for partition in broker.partitions():
        made.records[name_of(partition)], _ = served(partition)
    made.topics = {topic.topic_id.hex: topic.name for topic in broker.topics.all()}
    shutil.copytree(made.stopped, made.killed)
    broker.close()
    return made


def uncovered(path: Path, at: int) -> bool:
    """Return whether a byte of a log has no checksum, and no start notices its change: the file was on disk, or the
    log may have gaps."""
    index, checkpoint = path.with_suffix(".index"), path.with_name("checkpoint")
    was_on_disk = index.exists() and len(index.read_bytes()) >= SUMMARY_SIZE
    if path.suffix != ".log" or not (was_on_disk or checkpoint.exists()):
        return False
    content, position = path.read_bytes(), 0
    try:
        while position + read_header(content, position).size <= at:
            position += read_header(content, position).size
    except InvalidBatchError:  # it is damaged already
        return True
    return at - position < CHECKSUMMED_FROM


def has_index(path: Path) -> bool:
    """Return whether the file of an index tells what a log had; one that was not on disk may have been empty."""
    try:
        return unpack_summary(path.with_suffix(".index").read_bytes()).size == path.stat().st_size
    except (FileNotFoundError, InvalidIndexError):
        return False


def is_known(path: Path) -> bool:
    """Return whether another file tells that a file was there: what follows a segment is in its index."""
    before = [each for each in path.parent.glob("*.log") if each < path]
    if path.suffix != ".log" or not before:
        return True
    try:
        unpack_summary(max(before).with_suffix(".index").read_bytes())
    except (FileNotFoundError, InvalidIndexError):
        return False
    return True


def damage(directory: Path, topics: Mapping[str, str], chance: random.Random, gone: set[Path]) -> None:
    """Harm one file of the logs, or the metadata.

    Args:
        directory: the data directory.
        topics: names of topics by the names of their directories.
        chance: what is drawn from.
        gone: the directories of partitions from which a file was removed, which this one joins.
    """
    files = (path for path in directory.glob("topics/**/*") if path.is_file())
    path = chance.choice(sorted(files, key=lambda path: (topics[path.parts[-3]], *path.parts[-2:])))
    metadata = sorted(directory.glob("metadata.sqlite*"))
    if metadata and chance.random() < 0.2:
        path = chance.choice(metadata)
    if path.parent in gone and path.suffix == ".index":
        return  # two files at once, of which each tells of the other
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content)) if content else 0
    match chance.choice(["gone", "cut", "longer", "flipped", "zeros", "empty"]):
        case "gone" if is_known(path):
            path.unlink()
            gone.add(path.parent)
        case "cut":
            # A file that ends with a whole batch could never have had more.
            path.write_bytes(content[:at] + b"x")
        case "empty" if path.suffix != ".log" or has_index(path):
            path.write_bytes(b"")
            gone.add(path.parent)
        case "longer":
            path.write_bytes(content + chance.randbytes(chance.randrange(1, 100)))
        case "zeros" if not uncovered(path, at):
            path.write_bytes(content[:at] + bytes(len(content) - at))
        case "flipped" if content and not uncovered(path, at):
            content[at] ^= 1 << chance.randrange(8)
            path.write_bytes(content)
        case _:
            pass


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_start_serves_was_acknowledged_or_it_says_what_lacks(
    tmp_path: Path, written: Written, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    chance = random.Random(seed)
    directory = tmp_path / "data"
    shutil.copytree(chance.choice([written.stopped, written.killed]), directory)
    gone: set[Path] = set()
    for _ in range(chance.randrange(1, 4)):
        damage(directory, written.topics, chance, gone)
    try:
        broker = Broker(directory)
    except BrokerError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert any(name in refusal for name in (str(directory), OFFSETS_TOPIC, TRANSACTIONS_TOPIC)), refusal
        assert "restore" in refusal or "use the version" in refusal
        return
    for partition in broker.partitions():
        name = name_of(partition)
        found, is_noticed = served(partition)
        found = {offset: record for offset, record in found.items() if offset < broker.ends[name]}
        assert found.items() <= written.records[name].items()
        if len(found) < len(written.records[name]):
            assert is_noticed or f"{name}: " in caplog.text, name
    for group in GROUPS:
        committed = broker.groups.offsets.of_group(group).get(("plain", 0))
        commits = written.commits[group]
        assert committed is None or committed.offset in commits
        if committed is None or committed.offset != commits[-1]:
            assert f"{OFFSETS_TOPIC}-0: " in caplog.text or "metadata do not know" in caplog.text
    after = [partition for partition in broker.partitions() if not partition.topic.startswith("_")]
    ends = [partition.append(memoryview(encode_records([LogRecord(0, 1_000, *NEW)]))) for partition in after]
    broker.close()
    again = Broker(directory)
    for partition, offset in zip(after, ends, strict=True):
        data = again.topics.partition(partition.topic, partition.index).read(offset, 1)
        assert [(record.key, record.value) for record in read_records(memoryview(data))] == [NEW]
    again.close()
