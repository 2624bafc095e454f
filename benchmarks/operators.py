"""Measures each family of operators on one core: records a second, and where the time goes.

    python benchmarks/operators.py [--records N] [--only FAMILY,...] [--base memory,rocksdb] [--json]

The tasks of a program take turns in this process: bytes in, bytes out, one partition, a commit after each epoch. Rates
are by CPU time. Where the time goes is sampled a thousand times a CPU second: what runs innermost of Penstock counts,
be it a user's function (those of families.py), a serde, a store, or anything else, which is the engine. Sampling costs
a few percent, so rates are measured without it, in a separate run. Garbage is collected as in a worker of Spark.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import numpy as np

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.families import FAMILIES, KEYS, Family, key_of, value_of
from penstock import Serdes, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.host.spark.worker.stage import prepare_worker
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch
from penstock.state.api import Base
from penstock.state.memory import MemoryBase
from penstock.state.rocksdb import RocksDBBase
from penstock.task.stream_task import StreamTask

EPOCH: Final = 100_000
"""Records from one commit to the next."""

_BATCH: Final = 10_000  # records of one batch from a host, as librdkafka hands them out
_WARM_UP_EPOCHS: Final = 1
_SAMPLE_SECONDS: Final = 0.001
BASES: Final = ("memory", "rocksdb")
PARTS: Final = ("user functions", "serdes", "stores", "engine")


@dataclass(frozen=True)
class Measurement:
    """One row: the rate, and the shares of the time (0 to 1) by part."""

    family: str
    base: str
    records: int
    records_per_second: float
    aim: int
    shares: dict[str, float] = field(default_factory=dict)


class Tasks:
    """The tasks of one program, each with its base, and the way of records from one to the next."""

    def __init__(self, family: Family, base: str, directory: Path) -> None:
        """Build the program of `family` over bases of the kind `base`, those on disk below `directory`."""
        builder = StreamsBuilder()
        family.build(builder)
        config = StreamsConfig(
            {
                "application.id": "operators",
                "default.key.serde": Serdes.string(),
                "default.value.serde": Serdes.string(),
                "dsl.store.suppliers.class": "in_memory" if base == "memory" else "rocksdb",
                **family.config,
            }
        )
        built = builder.build().build("operators")
        partitions = {topic: 1 for spec in built.subtopologies for topic in spec.sink_topics}
        self._tasks: list[StreamTask] = []
        self._readers: dict[str, list[StreamTask]] = {}
        self.written = 0
        self._commits = 0
        for spec in built.subtopologies:
            made: Base = MemoryBase() if base == "memory" else RocksDBBase(directory / str(spec.id))
            task = StreamTask(spec, TaskId(spec.id, 0), config, made, partitions)
            task.initialize()
            self._tasks.append(task)
            for topic in spec.source_topics:
                self._readers.setdefault(topic, []).append(task)

    def run(self, inputs: Sequence[tuple[str, RecordBatch]]) -> None:
        """Process `inputs` and all that follows from them, to the last commit."""
        waiting = deque(inputs)
        while waiting:
            for topic, batch in waiting:
                for task in self._readers[topic]:
                    task.add_records(topic, 0, batch)
            waiting.clear()
            for task in self._tasks:
                if not task.process():
                    continue
                commit = task.prepare_commit()
                self._commits += 1
                task.committed(commit.changes, str(self._commits).encode())
                for output in commit.output:
                    if output.topic in self._readers:
                        waiting.append((output.topic, output.batch))
                    else:
                        self.written += len(output.batch)

    def close(self) -> None:
        """Close the tasks."""
        for task in self._tasks:
            task.close()


def batches(family: Family, first: int, records: int) -> list[tuple[str, RecordBatch]]:
    """Return the records from number `first` on, in turn for each topic of `family`."""
    made = []
    for start in range(first, first + records, _BATCH):
        numbers = range(start, min(start + _BATCH, first + records))
        for place, topic in enumerate(family.topics):
            own = numbers[place :: len(family.topics)]
            made.append((topic, batch_of(own, family.value, len(family.topics))))
    return made


def batch_of(numbers: range, value: Callable[[int], bytes], topics: int = 1) -> RecordBatch:
    """Return a record for each of `numbers`, which is also its timestamp and offset; topics that take turns have the
    same keys."""
    times = np.fromiter(numbers, np.int64, len(numbers))
    return RecordBatch(
        [key_of(number // topics) for number in numbers], [value(number) for number in numbers], times, times
    )


def measured(family: Family, base: str, records: int) -> Measurement:
    """Run `family` twice, for the rate and for the shares."""
    cpu_seconds = _run(family, base, records)
    samples: Counter[str] = Counter()
    with _sampling(samples):
        _run(family, base, records)
    total = max(samples.total(), 1)
    shares = {part: samples[part] / total for part in PARTS}
    return Measurement(family.name, base, records, records / cpu_seconds, family.aim[base], shares)


def _run(family: Family, base: str, records: int) -> float:
    """Return the CPU seconds that `records` records took after the warm-up; raises AssertionError if nothing came
    out."""
    with tempfile.TemporaryDirectory() as directory:
        tasks = Tasks(family, base, Path(directory))
        for topic in family.tables:
            tasks.run([(topic, batch_of(range(KEYS), value_of))])
        size = min(EPOCH, records)
        cpu_seconds, done, number = 0.0, 0, KEYS
        while done < records:
            epoch = batches(family, number, size)
            begin = time.process_time()
            tasks.run(epoch)
            if number >= KEYS + _WARM_UP_EPOCHS * size:
                cpu_seconds += time.process_time() - begin
                done += size
            number += size
        tasks.close()
        if not tasks.written:
            raise AssertionError(f"Nothing came out of {family.name} ({base}).")
    return cpu_seconds


# ---------------------------------------- where the time goes


@contextmanager
def _sampling(samples: Counter[str]) -> Iterator[None]:
    """Count in `samples` the part that runs at each sample within the block."""

    def sample(number: int, frame: FrameType | None) -> None:
        samples[_part(frame)] += 1

    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _part(frame: FrameType | None) -> str:
    """Return the part that `frame`, or the first of Penstock around it, belongs to."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module == "benchmarks.families":
            return "user functions"
        if module.startswith("penstock.serdes"):
            return "serdes"
        if module.startswith("penstock.state"):
            return "stores"
        if module.startswith("penstock."):
            return "engine"
        frame = frame.f_back
    return "engine"


# ---------------------------------------- the command


def table(measurements: Sequence[Measurement]) -> str:
    """Return the rows as Markdown."""
    head = f"| family | base | records/s | aim | {' | '.join(PARTS)} |\n|---|---|---:|---:|{'---:|' * len(PARTS)}\n"
    rows = (
        f"| {each.family} | {each.base} | {each.records_per_second:,.0f} | {each.aim:,} | "
        + " | ".join(f"{each.shares[part]:.0%}" for part in PARTS)
        + " |\n"
        for each in measurements
    )
    return head + "".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments ask for and print it."""
    parser = argparse.ArgumentParser(description="Records a second of one core, by family of operators.")
    parser.add_argument("--records", type=int, default=500_000, help="records of each run after the warm-up")
    parser.add_argument("--only", default=",".join(FAMILIES), help="families, with commas between them")
    parser.add_argument("--base", default=",".join(BASES), help="memory, rocksdb or both")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    names, bases = options.only.split(","), options.base.split(",")
    unknown = [name for name in names if name not in FAMILIES] + [base for base in bases if base not in BASES]
    if unknown:
        print(
            f"not known: {', '.join(unknown)}; families: {', '.join(FAMILIES)}; bases: {', '.join(BASES)}",
            file=sys.stderr,
        )
        return 2
    prepare_worker()
    asked = [(FAMILIES[name], base) for name in names for base in bases if base in FAMILIES[name].aim]
    found: list[Measurement] = []
    for family, base in asked:
        print(f"{family.name} ({base}) ...", file=sys.stderr)
        found.append(measured(family, base, options.records))
    print(json.dumps([asdict(each) for each in found]) if options.json else table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
