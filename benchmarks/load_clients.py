"""Clients that produce and consume as fast as they can: confluent-kafka, and Kafka's own in Java.

Here live what is sent and how each client is set up. Not here: topics, brokers and tables (broker.py).
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Final, Protocol, Self

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from benchmarks.rivals.java import compile_java
from tests.support.kafka import kafka_class_path

_SOURCE: Final = Path(__file__).with_name("rivals") / "LoadClient.java"
_TIMEOUT_SECONDS: Final = 30
_LAST_LINES: Final = 20  # of what a client writes when it fails


@dataclass(frozen=True)
class Load:
    """Records that are produced and consumed.

    Args:
        value_bytes: size of each value.
        partitions: over how many they are spread.
        compression: of the batches.
        total_bytes: of all values.
    """

    value_bytes: int
    partitions: int
    compression: str
    total_bytes: int = 100_000_000

    @property
    def name(self) -> str:
        """What tables call it."""
        on = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{self.value_bytes}-byte values on {on} ({self.compression})"

    @property
    def records(self) -> int:
        """How many records are sent."""
        return self.total_bytes // self.value_bytes


class LoadClient(Protocol):
    """A client that produces and consumes over one connection.

    Attributes:
        name: what tables call it.
    """

    name: str

    def produce(self, bootstrap: str, topic: str, load: Load) -> float:
        """Return the records per second that a producer sends, until the last is acknowledged."""
        ...

    def consume(self, bootstrap: str, topic: str, load: Load) -> float:
        """Return the records per second that one consumer reads, after its first poll."""
        ...


class ConfluentClient:
    """The clients of confluent-kafka."""

    name = "confluent-kafka"

    def produce(self, bootstrap: str, topic: str, load: Load) -> float:
        """Return the records per second that the producer sends, until the last is acknowledged."""
        settings = {"linger.ms": 5, "compression.type": load.compression, "batch.size": 1_000_000}
        producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.kbytes": 1_000_000, **settings})
        # Words, which compress as text does.
        words = random.Random(1)
        values = ["".join(words.choices("etaoinshrdlu ", k=load.value_bytes)).encode() for _ in range(1_000)]
        began = perf_counter()
        for number in range(load.records):
            while True:
                try:
                    producer.produce(topic, values[number % 1_000], partition=number % load.partitions)
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(_TIMEOUT_SECONDS):
            raise TimeoutError(f"{bootstrap} did not acknowledge all records")
        return load.records / (perf_counter() - began)

    def consume(self, bootstrap: str, topic: str, load: Load) -> float:
        """Return the records per second that one consumer reads, after its first poll."""
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "queued.min.messages": 1_000_000})
        consumer.assign([Position(topic, partition, 0) for partition in range(load.partitions)])
        count = first = len(consumer.consume(1, _TIMEOUT_SECONDS))
        began = perf_counter()
        while count < load.records:
            messages = consumer.consume(min(10_000, load.records - count), _TIMEOUT_SECONDS)
            if not messages:
                raise TimeoutError(f"{count:,} of {load.records:,} records came from {bootstrap}")
            count += len(messages)
        seconds = perf_counter() - began
        consumer.close()
        return (count - first) / seconds


class JavaClient:
    """Kafka's own clients, in a JVM that stays warm from load to load; a context manager that ends it.

    Raises:
        KafkaUnavailableError: there is no Java, or no Kafka.
    """

    name = "Java"

    def __init__(self) -> None:
        self._class_path = f"{compile_java(_SOURCE)}{os.pathsep}{kafka_class_path()}"

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            ["java", "-Xmx1g", "-cp", self._class_path, _SOURCE.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes its input, which ends it
        self._errors.close()

    def produce(self, bootstrap: str, topic: str, load: Load) -> float:
        """Return the records per second that the producer sends, until the last is acknowledged."""
        return self._run("produce", bootstrap, topic, load)

    def consume(self, bootstrap: str, topic: str, load: Load) -> float:
        """Return the records per second that one consumer reads, after its first poll."""
        return self._run("consume", bootstrap, topic, load)

    def _run(self, what: str, bootstrap: str, topic: str, load: Load) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = (what, bootstrap, topic, load.partitions, load.records, load.value_bytes, load.compression)
        self._process.stdin.write(" ".join(map(str, command)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._errors.seek(0)
            said = "".join(self._errors.readlines()[-_LAST_LINES:])
            raise RuntimeError(f"the Java client has ended: {what} {load.name} on {bootstrap}\n{said}")
        return float(answer)
