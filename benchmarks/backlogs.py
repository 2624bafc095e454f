"""Measures the threads host under backlogs: how long the record of a quiet task waits, and how much memory is used.

    python benchmarks/backlogs.py [--tasks "2;20;200"] [--partitions 1000] [--records N] [--seconds N] [--json]

One task is quiet: it gets five records a second, and all others have a backlog of records that take 20 us each. The
memory is that of one instance with as many tasks as `--partitions`. The rows need an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contestants import CONTESTANTS, MAP, PENSTOCK, Job, Running, running
from benchmarks.environments import UnavailableError
from benchmarks.running import Broker, brokers
from benchmarks.threads import SINK, SOURCE, resident_megabytes
from benchmarks.topics import client_config, delete_topics_of, topics
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentConsumer
from penstock.client.confluent.producer import ConfluentProducer
from penstock.plan.partitioning import partition_for
from penstock.record import TopicPartition

_PAUSE_SECONDS: Final = 0.2
_START_SECONDS: Final = 120.0
_RECORD: Final = b"x" * 20
_QUIET_KEY, _BUSY_KEY = b"quiet", b"backlog"
"""Of records whose results are in different partitions: those of the quiet task must not wait for a reader."""
_QUIET_SINK, _BUSY_SINK = (TopicPartition(SINK, partition_for(key, 2)) for key in (_QUIET_KEY, _BUSY_KEY))


def _fill(bootstrap: str, records: int, partitions: int) -> None:
    """Write records to the first partitions, each in one piece."""
    with closing(ConfluentProducer(client_config(bootstrap))) as producer:
        for partition in range(partitions):
            for _ in range(partition, records, partitions):
                producer.send(SOURCE, _BUSY_KEY, _RECORD, partition)


class _Quiet:
    """Reads the sink, and writes the times of records to the last partition."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        self._config = client_config(bootstrap)
        self._partition = partition
        self._ended = threading.Event()
        self.waits: list[float] = []
        self._counted_from = 0.0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._reader.start()

    def begin(self) -> None:
        """Write: from now on, for what is written before the start waits for that."""
        self._writer.start()

    def forget(self) -> None:
        """Count only records that are written from now on."""
        self._counted_from = time.perf_counter()
        self.waits.clear()

    def _write(self) -> None:
        with closing(ConfluentProducer(self._config.overridden({"producer.linger.ms": 0}))) as producer:
            while not self._ended.wait(_PAUSE_SECONDS):
                producer.send(SOURCE, _QUIET_KEY, repr(time.perf_counter()).encode(), self._partition)

    def _read(self) -> None:
        with closing(ConfluentConsumer(self._config)) as consumer:
            consumer.assign({_QUIET_SINK: 0})
            while not self._ended.is_set():
                for _, batch in consumer.poll(10, 10_000):
                    now = time.perf_counter()
                    written = [float(value or b"0") for value in batch.values]
                    self.waits += [now - each for each in written if each >= self._counted_from]

    def end(self) -> None:
        """Write and read no more."""
        self._ended.set()
        self._reader.join()
        if self._writer.is_alive():
            self._writer.join()


def _wait_for_output(done: Callable[[], int], one: Running) -> None:
    began = time.perf_counter()
    while not done():
        one.check()
        if time.perf_counter() - began > _START_SECONDS:
            raise UnavailableError(f"no result within {_START_SECONDS:.0f} s")
        time.sleep(_PAUSE_SECONDS)


def measure(broker: Broker, partitions: int, records: int, seconds: float) -> dict[str, float]:
    """Return how long records of the quiet one of so many tasks wait (ms), if one has come in `seconds`, how many
    records a second all process, and the most memory (MB)."""
    contestant = next(each for each in CONTESTANTS if each.name == PENSTOCK)
    with ExitStack() as opened:
        opened.enter_context(topics(broker.bootstrap, SOURCE, partitions=partitions))
        opened.enter_context(topics(broker.bootstrap, SINK, partitions=2))
        _fill(broker.bootstrap, records, partitions - 1)
        directory = opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-benchmark-"))
        application = f"benchmark-{os.getpid()}-{time.monotonic_ns()}"
        opened.callback(delete_topics_of, broker.bootstrap, application)
        one = opened.enter_context(
            running(contestant, Job(MAP, broker.bootstrap, SOURCE, SINK, application, directory))
        )
        admin = opened.enter_context(closing(ConfluentAdmin(client_config(broker.bootstrap))))
        quiet = _Quiet(broker.bootstrap, partitions - 1)
        opened.callback(quiet.end)

        def done() -> int:
            return admin.end_offsets([_BUSY_SINK])[_BUSY_SINK]

        _wait_for_output(done, one)
        quiet.begin()
        _wait_for_output(lambda: len(quiet.waits), one)  # all tasks run: what comes first has waited for the start
        quiet.forget()
        began, before, most = time.perf_counter(), done(), 0.0
        while (took := time.perf_counter() - began) < seconds and done() < records:
            one.check()
            most = max(most, resident_megabytes(one.pid))
            time.sleep(_PAUSE_SECONDS)
        waits = sorted(quiet.waits)
        waited = {"p50_ms": 1000 * waits[len(waits) // 2], "most_ms": 1000 * waits[-1]} if waits else {}
        return {**waited, "records_per_second": (done() - before) / took, "resident_mb": most}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", default="2;20;200", help="numbers of tasks, with semicolons between (%(default)s)")
    parser.add_argument("--partitions", type=int, default=1_000, help="of the row of memory; 0 for none (%(default)s)")
    parser.add_argument("--records", type=int, default=10_000_000, help="of the row of memory (%(default)s)")
    parser.add_argument("--backlog", type=int, default=2_000_000, help="records of the other rows (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row (%(default)s)")
    parser.add_argument("--broker", default="Kafka", help="Kafka or 'embedded broker' (%(default)s)")
    parser.add_argument("--bootstrap", help="use this Kafka, and start no broker")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parsed = parser.parse_args(arguments)
    rows = [(int(tasks), parsed.backlog) for tasks in parsed.tasks.split(";") if tasks]
    rows += [(parsed.partitions, parsed.records)] if parsed.partitions else []
    results: dict[str, Any] = {}
    missing: dict[str, str] = {}
    with brokers(parsed.bootstrap, missing) as found:
        broker = next((each for each in found if each.name == parsed.broker), found[0])
        for tasks, records in rows:
            name = f"{tasks} tasks, {records:,} records"
            try:
                results[name] = found_here = measure(broker, tasks, records, parsed.seconds)
            except UnavailableError as error:
                missing[name] = str(error)
            else:
                print(name, *(f"{what} {value:,.1f}" for what, value in found_here.items()), file=sys.stderr, sep=", ")
    print(json.dumps({"results": results, "missing": missing}, indent=2 if parsed.json else None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
