"""Penstock on the threads host, as a program of its own that runs until its standard input ends.

Its argument is JSON with the fields of `contestants.Job`. Each restore of a store is a line of JSON on standard output.
Only what the jobs ask for differs from the defaults.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks.contestants import KEYS, MAP, Job
from penstock import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.record import TopicPartition
from penstock.state.restore_listener import StateRestoreListener

STORE = "counts-store"

ROUNDS = 700
"""Of the loop of the function that takes its time: about 20 us on the machine of the figures."""


def take_time(value: str) -> str:
    """Return `value` after a while in which Python computes."""
    total = 0
    for number in range(ROUNDS):
        total += number
    return value if total else ""


def topology_of(job: Job) -> Topology:
    """Return the count of keys or a map (one sub-topology), or the count of the words of lines (two)."""
    builder = StreamsBuilder()
    if job.program == MAP:
        texts = Consumed.with_(Serdes.string(), Serdes.string()), Produced.with_(Serdes.string(), Serdes.string())
        builder.stream(job.source, texts[0]).map_values(take_time).to(job.sink, texts[1])
        return builder.build()
    if job.program == KEYS:
        records = builder.stream(job.source, Consumed.with_(Serdes.string(), Serdes.string()))
        counts = records.group_by_key().count(Materialized.as_(STORE))
    else:
        lines = builder.stream(job.source, Consumed.with_(Serdes.string(), Serdes.string()))
        words = lines.flat_map_values(lambda line: line.lower().split())
        counts = words.group_by(lambda _, word: word).count(Materialized.as_(STORE))
    counts.to_stream().to(job.sink, Produced.with_(Serdes.string(), Serdes.long()))
    return builder.build()


def config_of(job: Job) -> dict[str, Any]:
    """Return the configuration that a job asks for."""
    return {
        "application.id": job.application,
        "bootstrap.servers": job.bootstrap,
        "penstock.host": "threads",
        "state.dir": job.directory,
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.string(),
        "processing.guarantee": job.guarantee,
        "commit.interval.ms": job.commit_ms,
        "statestore.cache.max.bytes": job.cache_bytes,
        "num.standby.replicas": job.standbys,
        "num.stream.threads": job.threads,
        "auto.offset.reset": "earliest",
    }


class _Restores(StateRestoreListener):
    """Prints how long each restore took."""

    def __init__(self) -> None:
        self._began = (0.0, 0.0)

    def on_restore_start(self, topic_partition: TopicPartition, store_name: str, start: int, end: int) -> None:
        self._began = time.perf_counter(), time.process_time()

    def on_batch_restored(self, topic_partition: TopicPartition, store_name: str, last: int, number: int) -> None:
        pass

    def on_restore_end(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        seconds, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        print(json.dumps({"event": "restored", "records": total_restored, "seconds": seconds, "cpu": cpu}), flush=True)


def main() -> None:
    """Run the job of the first argument."""
    job = Job(**json.loads(sys.argv[1]))
    streams = KafkaStreams(topology_of(job), config_of(job))
    streams.set_global_state_restore_listener(_Restores())
    streams.start()
    sys.stdin.read()
    streams.close(30_000)
