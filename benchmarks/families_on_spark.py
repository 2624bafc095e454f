"""Penstock on Spark, family by family: programs of families.py from topic to topic, and epochs in which nearly all
tasks are idle.

Everything is a user's default: KafkaStreams, its own session on all cores, state on disk, the guarantee that
the broker allows. Rows of tables are written before the program starts; what it then reads of its topics is measured.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.families import FAMILIES, KEYS, key_of
from benchmarks.measuring import descendants, watch
from benchmarks.on_spark import application, records_read, spread, wait_for_records
from benchmarks.topics import PARTITIONS, client_config, topics
from penstock import StreamsBuilder
from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.producer import ConfluentProducer
from penstock.plan.partitioning import partition_for

APPLICATION: Final = "benchmark-families"
OUTPUT: Final = "out"
IDLE_TASKS: Final = 128

_FIRST_TIMESTAMP: Final = 1_700_000_000_000
_WARM_UP_EPOCHS: Final = 5
_LOOK_SECONDS: Final = 0.5


def measure_family(
    bootstrap: str, guarantee: str, family: str, records: int, distinct_keys: int, changelog_topics: bool = False
) -> dict[str, Any]:
    """Run `records` records of `distinct_keys` keys through a family; return the rate over the warm part of the run,
    and the largest memory of a worker in it. changelog_topics: whether it writes them too."""
    chosen = FAMILIES[family]
    builder = StreamsBuilder()
    chosen.build(builder)
    names = {*chosen.topics, *chosen.tables, OUTPUT}
    config = {
        **chosen.config,
        "processing.guarantee": guarantee,
        "penstock.changelog.topics": changelog_topics,
    }
    running = application(builder.build(), bootstrap, APPLICATION, **config)
    with topics(bootstrap, *sorted(names)), running as streams:
        for table in chosen.tables:
            _fill(bootstrap, (table,), KEYS, key_of, chosen.value)
        key = key_of if distinct_keys == KEYS else _distinct(distinct_keys)
        _fill(bootstrap, chosen.topics, records, key, chosen.value)
        total = records + KEYS * len(chosen.tables)
        with _memory_watched() as memory:
            streams.start()
            window = watch(lambda: records_read(streams), total)
        epochs = int(streams.statistics()["epoch"])
    return {
        "family": family,
        "records": window.lines,
        "distinct_keys": distinct_keys,
        "seconds": window.seconds,
        "records_per_second": window.lines / window.seconds,
        "cpu_seconds": window.cpu_seconds,
        "epochs": epochs,
        "worker_bytes": memory.largest,
    }


def measure_idle_epoch(bootstrap: str, epochs: int) -> dict[str, Any]:
    """Return the time (ms) of an epoch in which one task of IDLE_TASKS has a record: median and p90."""
    builder = StreamsBuilder()
    FAMILIES["count"].build(builder)
    config = client_config(bootstrap)
    admin = ConfluentAdmin(config)
    admin.create_topics([NewTopic("in", IDLE_TASKS), NewTopic(OUTPUT, PARTITIONS)])
    times: list[float] = []
    try:
        with application(builder.build(), bootstrap, APPLICATION) as streams:
            producer = ConfluentProducer(config)
            streams.start()
            for turn in range(_WARM_UP_EPOCHS + epochs):
                producer.send("in", b"key", b"value", turn % IDLE_TASKS)
                producer.flush()
                wait_for_records(streams, turn + 1)
                if turn >= _WARM_UP_EPOCHS:
                    times.append(float(streams.statistics()["epoch_ms"]))
            producer.close()
    finally:
        admin.delete_topics(["in", OUTPUT])
        admin.close()
    return {"tasks": IDLE_TASKS, "epochs": epochs, **spread(times)}


def _distinct(keys: int) -> Callable[[int], bytes]:
    return lambda number: b"key%d" % (number % keys)


def _fill(
    bootstrap: str,
    names: tuple[str, ...],
    records: int,
    key: Callable[[int], bytes],
    value: Callable[[int], bytes],
) -> None:
    """Write records to the topics in turn, a millisecond apart, each to the partition of its key."""
    producer = ConfluentProducer(client_config(bootstrap))
    for number in range(records):
        name = key(number)
        partition = partition_for(name, PARTITIONS)
        producer.send(names[number % len(names)], name, value(number), partition, _FIRST_TIMESTAMP + number)
    producer.close()


@dataclass
class _Memory:
    largest: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def _memory_watched() -> Iterator[_Memory]:
    """Keep the largest resident memory (bytes, without what is mapped from files) of a Python worker of this run."""
    memory = _Memory()

    def look() -> None:
        while not memory.ended.wait(_LOOK_SECONDS):
            for pid in descendants(os.getpid()):
                memory.largest = max(memory.largest, _worker_bytes(pid))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield memory
    finally:
        memory.ended.set()
        watcher.join()


def _worker_bytes(pid: int) -> int:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0  # it has ended since
    if b"penstock.host.spark.worker.daemon" not in command and b"pyspark" not in command:
        return 0
    if b"java" in command:
        return 0
    anonymous = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(anonymous[0].split()[1]) * 1024 if anonymous else 0
