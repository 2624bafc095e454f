"""Measures the embedded broker beside a real Kafka, each row on both in one run.

    python benchmarks/broker.py [--only ROW,...] [--bootstrap host:9092] [--json]

Brokers and topics are made and removed. Each row runs ROUNDS times on each broker, in turn; the median counts. A row is
a function in ROWS that takes the address of a broker and returns its figure.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from benchmarks.running import brokers
from benchmarks.topics import topics

ROUNDS: Final = 3
_TRANSACTIONS: Final = 300
_WARM_UP_TRANSACTIONS: Final = 30
_RECORDS: Final = 100
_VALUE: Final = b"v" * 100
_LOAD_BYTES: Final = 50_000_000
_TIMEOUT_SECONDS: Final = 30


@dataclass(frozen=True)
class Row:
    """Something that is measured.

    Args:
        name: how it is called in the table and by `--only`.
        unit: the unit of its figure; smaller is better where it is a time, larger where it is a rate.
        measure: takes the address of a broker and returns the figure.
    """

    name: str
    unit: str
    measure: Callable[[str], float]


@dataclass(frozen=True)
class Measurement:
    """The figure of one row on one broker: the median of its rounds."""

    row: str
    broker: str
    figure: float
    unit: str


def transactions(bootstrap: str) -> float:
    """Return the time (ms) of a transaction of 100 records of 100 bytes, with confluent-kafka."""
    return _transactions(bootstrap, has_offsets=False)


def transactions_with_offsets(bootstrap: str) -> float:
    """Return the time (ms) of such a transaction that also commits an offset of a group."""
    return _transactions(bootstrap, has_offsets=True)


def _transactions(bootstrap: str, has_offsets: bool) -> float:
    topic = f"transactions-{uuid.uuid4().hex[:8]}"
    with topics(bootstrap, topic):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
        producer.init_transactions(_TIMEOUT_SECONDS)
        began = 0.0
        for number in range(_WARM_UP_TRANSACTIONS + _TRANSACTIONS):
            if number == _WARM_UP_TRANSACTIONS:
                began = time.perf_counter()
            producer.begin_transaction()
            for _ in range(_RECORDS):
                producer.produce(topic, _VALUE, partition=0)
            if has_offsets:
                offsets, group = [Position(topic, 0, number)], consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(offsets, group, _TIMEOUT_SECONDS)
            producer.commit_transaction(_TIMEOUT_SECONDS)
        seconds = time.perf_counter() - began
        consumer.close()
    return 1_000 * seconds / _TRANSACTIONS


@dataclass(frozen=True)
class Load:
    """Records that are produced and consumed.

    Args:
        value_bytes: size of each value. partitions: over how many they are spread. compression: of the batches.
    """

    value_bytes: int
    partitions: int
    compression: str

    @property
    def name(self) -> str:
        """How the rows of the load call it."""
        on = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{self.value_bytes}-byte values on {on} ({self.compression})"

    @property
    def records(self) -> int:
        """How many records are sent: as many as make _LOAD_BYTES."""
        return _LOAD_BYTES // self.value_bytes

    def produce(self, bootstrap: str) -> float:
        """Return the records per second that confluent-kafka's producer sends, until the last is acknowledged."""
        topic = f"load-{uuid.uuid4().hex[:8]}"
        with topics(bootstrap, topic, partitions=self.partitions):
            return self.records / self._fill(bootstrap, topic)

    def consume(self, bootstrap: str) -> float:
        """Return the records per second that one consumer of confluent-kafka reads, from first to last."""
        topic = f"load-{uuid.uuid4().hex[:8]}"
        with topics(bootstrap, topic, partitions=self.partitions):
            self._fill(bootstrap, topic)
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "queued.min.messages": 1_000_000})
            consumer.assign([Position(topic, partition, 0) for partition in range(self.partitions)])
            count = len(consumer.consume(1, _TIMEOUT_SECONDS))
            began = time.perf_counter()
            while count < self.records:
                messages = consumer.consume(min(10_000, self.records - count), _TIMEOUT_SECONDS)
                if not messages:
                    raise TimeoutError(f"{count:,} of {self.records:,} records came from {bootstrap}")
                count += len(messages)
            seconds = time.perf_counter() - began
            consumer.close()
        return count / seconds

    def _fill(self, bootstrap: str, topic: str) -> float:
        """Send the records, and return how many seconds it took."""
        settings = {"linger.ms": 5, "compression.type": self.compression, "batch.size": 1_000_000}
        producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.kbytes": 1_000_000, **settings})
        # Words, which compress as text does.
        words = random.Random(1)
        values = ["".join(words.choices("etaoinshrdlu ", k=self.value_bytes)).encode() for _ in range(1_000)]
        began = time.perf_counter()
        for number in range(self.records):
            while True:
                try:
                    producer.produce(topic, values[number % 1_000], partition=number % self.partitions)
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(_TIMEOUT_SECONDS):
            raise TimeoutError(f"{bootstrap} did not acknowledge all records")
        return time.perf_counter() - began


_LOADS: Final = tuple(
    Load(value_bytes, partitions, compression)
    for value_bytes in (100, 1_000)
    for partitions in (1, 100)
    for compression in ("none", "lz4")
)

ROWS: Final = (
    Row("transaction of 100 records", "ms", transactions),
    Row("transaction of 100 records and an offset", "ms", transactions_with_offsets),
    *(Row(f"produce {load.name}", "records/s", load.produce) for load in _LOADS),
    *(Row(f"consume {load.name}", "records/s", load.consume) for load in _LOADS),
)


def measure(rows: Sequence[Row], bootstrap: str | None, missing: dict[str, str]) -> list[Measurement]:
    """Measure rows on the brokers of a run.

    Args:
        rows: what is measured.
        bootstrap: address of a Kafka to measure; None for one that is started, and the embedded broker.
        missing: receives what could not be measured, and why.
    """
    found: list[Measurement] = []
    with brokers(bootstrap, missing) as running:
        for row in rows:
            # The brokers take turns, so that a busy machine slows both.
            rounds = [[row.measure(broker.bootstrap) for broker in running] for _ in range(ROUNDS)]
            for broker, figures in zip(running, zip(*rounds, strict=True), strict=True):
                found.append(Measurement(row.name, broker.name, round(statistics.median(figures), 3), row.unit))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="rows by the beginning of their names, by commas")
    parser.add_argument("--bootstrap", help="a Kafka of your own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    rows = [row for row in ROWS if row.name.startswith(wanted)]
    if not rows:
        parser.error(f"rows are {', '.join(row.name for row in ROWS)}")
    missing: dict[str, str] = {}
    measurements = measure(rows, options.bootstrap, missing)
    if options.json:
        print(json.dumps({"measurements": [asdict(one) for one in measurements], "missing": missing}, indent=2))
        return 0
    print("| row | broker | figure |\n|---|---|---|")
    for one in measurements:
        print(f"| {one.row} | {one.broker} | {one.figure:,} {one.unit} |")
    for what, why in missing.items():
        print(f"not measured: {what}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
