"""Measures the state of one task on the Spark host, without Spark and without a broker: a count over ever more keys.

    python benchmarks/state.py [--keys N] [--records N] [--only lmdb,rocksdb] [--checkpoint URI] [--json]

The task runs epoch after epoch as a worker runs it: base, segments, merging and snapshots on disk. First with 10,000
keys, then with as many as asked for, all new until they are used up; then its base is thrown away and restored from the
segments. Rates are by CPU time and by the clock; memory is what the process has for itself, without files that are
mapped. What was found is in README.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.families import FAMILIES, KEYS, value_of
from benchmarks.program import SERDES
from penstock import StreamsBuilder
from penstock.config import StreamsConfig
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.messages import TaskControl
from penstock.host.spark.protocol.placement import place
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.spark.worker.bases import task_directory
from penstock.host.spark.worker.printing import PrintBuffer
from penstock.host.spark.worker.stage import prepare_worker
from penstock.host.spark.worker.task_epoch import TaskEpoch
from penstock.host.spark.worker.task_state import EpochTaskState
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch, RecordBatch
from penstock.state.segment_log import log_from_json, path

BASES: Final = ("lmdb", "rocksdb")
EPOCH_RECORDS: Final = 500_000

_BATCH: Final = 10_000
_LOOK_SECONDS: Final = 0.05
_PRIME: Final = 1_000_003  # keys come in an order that looks random, each once before any comes again


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for."""
    options = _parser().parse_args(arguments)
    bases = options.only.split(",")
    unknown = sorted(set(bases) - set(BASES))
    if unknown:
        print(f"--only knows {', '.join(BASES)}; not {', '.join(unknown)}", file=sys.stderr)
        return 2
    prepare_worker()
    records = options.records or options.keys
    results = [measure(base, keys, records, options.checkpoint) for base in bases for keys in (KEYS, options.keys)]
    print(json.dumps(results, indent=2) if options.json else _table(results))
    return 0


def measure(base: str, keys: int, records: int, checkpoint: str | None = None) -> dict[str, Any]:
    """Count `records` records of `keys` keys over a base, and restore the base at the end; return the figures.

    checkpoint: where the segments go, a temporary directory by default.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        task = _Task(base, Path(directory), checkpoint or f"{directory}/checkpoint")
        with _measured() as run:
            for start in range(0, records, EPOCH_RECORDS):
                task.run(range(start, min(start + EPOCH_RECORDS, records)), keys)
        restored = task.drop_base()
        with _measured() as restore:
            task.restore()
    return {
        "base": base,
        "keys": keys,
        "records": records,
        **run.rates("", records),
        "entries_restored": restored,
        **restore.rates("restore_", restored),
    }


class _Task:
    """One task over its epochs."""

    def __init__(self, base: str, directory: Path, checkpoint: str) -> None:
        settings = {"application.id": "benchmark-state", "state.dir": str(directory), "penstock.state.base": base}
        builder = StreamsBuilder()
        FAMILIES["count"].build(builder)
        built = builder.build().build("benchmark-state")
        topics = {"in": 1, "out": 1}
        self._description = ApplicationDescription(
            config=StreamsConfig({**settings, **SERDES}, environment={}),
            topology=built,
            placement=place(built, topics, parallelism=1),
            topic_partitions=topics,
            begin={"in": [0]},
            checkpoint=checkpoint,
            checkpoint_id="benchmark",
            query_id="benchmark",
            generation=1,
            transactional=False,
            control_directory=str(directory),
        )
        self._checkpoint = Checkpoint(checkpoint)
        self._id = TaskId(built.subtopologies[0].id, 0)
        self._entry = TaskEntry()
        self._epoch = 0

    def run(self, numbers: range, keys: int) -> None:
        """Run the epoch of the records with these numbers."""
        self._epoch += 1
        epoch = TaskEpoch(self._description, self._checkpoint, self._id, self._control(), {})
        _, report = epoch.run(_inputs(numbers, keys), PrintBuffer())
        self._entry = report.entry

    def drop_base(self) -> int:
        """Throw the base away; return how many entries there are to be restored, as the store counts them."""
        route = path(log_from_json(dict(self._entry.segments)), None)
        shutil.rmtree(task_directory(self._description, str(self._id), self._checkpoint).database)
        return sum(info.entries for info in route.segments)

    def restore(self) -> None:
        """Bring a new base to the head, as the next epoch would."""
        self._epoch += 1
        EpochTaskState(self._description, self._checkpoint, self._id, self._control()).close()

    def _control(self) -> TaskControl:
        return TaskControl(self._epoch, self._epoch, self._entry)


def _inputs(numbers: range, keys: int) -> Iterator[PartitionBatch]:
    for start in range(numbers.start, numbers.stop, _BATCH):
        part = range(start, min(start + _BATCH, numbers.stop))
        offsets = np.arange(part.start, part.stop, dtype=np.int64)
        names: list[bytes | None] = [b"key%012d" % (number * _PRIME % keys) for number in part]
        yield PartitionBatch("in", 0, RecordBatch(names, [value_of(number) for number in part], offsets, offsets))


@dataclass
class _Measured:
    """What a block took: seconds by the clock and of CPU, and the most memory (bytes)."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    largest: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def rates(self, prefix: str, count: int) -> dict[str, float]:
        """Return rates of `count` things and the memory, under names that begin with `prefix`."""
        return {
            f"{prefix}per_second": count / self.seconds,
            f"{prefix}per_cpu_second": count / self.cpu_seconds,
            f"{prefix}bytes": self.largest,
        }


@contextmanager
def _measured() -> Iterator[_Measured]:
    measured = _Measured()

    def look() -> None:
        while not measured.ended.wait(_LOOK_SECONDS):
            measured.largest = max(measured.largest, _own_bytes())

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    begin, cpu_begin = time.perf_counter(), time.process_time()
    try:
        yield measured
    finally:
        measured.seconds, measured.cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
        measured.ended.set()
        watcher.join()
        measured.largest = max(measured.largest, _own_bytes())


def _own_bytes() -> int:
    """Return the resident memory of this process without what is mapped from files, 0 where there is no /proc."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")), 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--keys", type=int, default=10_000_000, help="distinct keys (%(default)s)")
    parser.add_argument("--records", type=int, help="records; as many as keys if not given")
    parser.add_argument("--only", default=",".join(BASES), help="bases, with commas between")
    parser.add_argument("--checkpoint", help="path or URI of the segments; not given: a place of their own")
    return parser


def _table(results: Sequence[dict[str, Any]]) -> str:
    rate: Callable[[float], str] = "{:,.0f}".format
    lines = [
        "| base | keys | records/s | records / CPU s | memory, MB | restored/s | restored / CPU s | memory, MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in results:
        figures = [
            rate(each[f"{prefix}{what}"]) for prefix in ("", "restore_") for what in ("per_second", "per_cpu_second")
        ]
        memory = [rate(each[f"{prefix}bytes"] / 1e6) for prefix in ("", "restore_")]
        run, restore = [*figures[:2], memory[0]], [*figures[2:], memory[1]]
        lines.append("| " + " | ".join([each["base"], rate(each["keys"]), *run, *restore]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
