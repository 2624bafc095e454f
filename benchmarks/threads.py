"""Measures the threads host beside Kafka Streams in Java, Quix Streams, Bytewax and Faust, in one run.

    python benchmarks/threads.py [--only "latency;words"] [--contestants "Penstock;Quix"] [--seconds N] [--json]

Prints one row for each measurement and contestant. Each contestant is a process of its own; all read the same topics of
the same broker. What the rows measure, and the figures of one run, are in README.md. The rows need an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contestants import (
    AS_INSTALLED,
    AT_LEAST_ONCE,
    CONTESTANTS,
    EXACTLY_ONCE,
    KEYS,
    MAP,
    PENSTOCK,
    ROOT,
    WORDS,
    Contestant,
    Job,
    Running,
    running,
    wait_for,
)
from benchmarks.environments import UnavailableError
from benchmarks.history import Rate, Run, save
from benchmarks.measuring import cpu_seconds_of, descendants
from benchmarks.running import Broker, brokers
from benchmarks.topics import PARTITIONS, client_config, delete_topics_of, fill, topics
from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentConsumer
from penstock.client.confluent.producer import ConfluentProducer
from penstock.errors import StreamsError
from penstock.record import TopicPartition

SOURCE: Final = "benchmark-source"
SINK: Final = "benchmark-sink"

RATE: Final = 1_000
"""Records a second of the rows that measure latency."""
WORDS_PER_LINE: Final = 5
CACHE_BYTES: Final = 10 << 20

_WARM_SECONDS: Final = 5.0
_READ_MS: Final = 10
_START_SECONDS: Final = 60.0
_WARM_SHARE: Final = 0.2
_STALLED_SECONDS: Final = 30.0
_IMPORTS: Final = 5


@dataclass(frozen=True)
class Options:
    """What the arguments say. seconds: of a row that measures latency, and at most of one that measures a rate."""

    seconds: float
    lines: int
    keys: int


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    row: str
    contestant: str
    broker: str
    text: str
    values: dict[str, float]
    remark: str = ""


@dataclass
class Results:
    """What a run has found, and why something is missing."""

    figures: list[Figure] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


Measure = Callable[[Contestant, Broker, Options], tuple[str, dict[str, float]]]
"""Returns a text for the table, and the figures in it; raises UnavailableError."""


@dataclass(frozen=True)
class Row:
    """A row of the table. own: whether only Penstock is measured."""

    name: str
    aim: str
    measure: Measure
    own: bool = False


# ---------------------------------------- latency


class Probe:
    """Writes records at a steady rate in one thread, and takes the times at which their results can be read in another.
    Both wait without using the CPU, which on a small machine the contestant would lack."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        """Connect."""
        config = client_config(bootstrap)
        self._producer = ConfluentProducer(config.overridden({"producer.linger.ms": 0}))
        self._consumer = ConfluentConsumer(config)
        self._consumer.assign({TopicPartition(SINK, partition): 0 for partition in range(PARTITIONS)})
        self._rate = rate
        self.sent: list[float] = []
        """When each record was written (s)."""
        self.read: dict[int, float] = {}
        """When the result of a record was read (s), by the number of the record."""

    def run(self, until: Callable[[float], bool], writes: bool = True) -> None:
        """Write and read until `until` holds of the time since this call (s); without `writes`, read only."""
        began = time.perf_counter()
        ended = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(self._write, ended) if writes else None
            try:
                while not until(time.perf_counter() - began):
                    self._read()
            finally:
                ended.set()
            if writer is not None:
                writer.result()

    def _read(self) -> None:
        for _, batch in self._consumer.poll(_READ_MS, 10_000):
            arrived = time.perf_counter()
            for key in batch.keys:
                self.read.setdefault(int(key or b"-1"), arrived)

    def _write(self, ended: threading.Event) -> None:
        began = time.perf_counter()
        written = 0
        while not ended.is_set():
            number = len(self.sent)
            self.sent.append(time.perf_counter())
            self._producer.send(SOURCE, b"%d" % number, b"x", number % PARTITIONS)
            written += 1
            time.sleep(max(0.0, began + written / self._rate - time.perf_counter()))

    def latencies(self, first: int, last: int) -> list[float]:
        """Return the times (ms) from writing to reading of the records `first` to `last` that were read, ascending."""
        return sorted(1000 * (self.read[n] - self.sent[n]) for n in range(first, last) if n in self.read)

    def has_read(self, first: int, last: int) -> bool:
        """Return whether the results of the records `first` to before `last` were read; the newest mostly come last."""
        return all(number in self.read for number in reversed(range(first, last)))

    def close(self) -> None:
        """Release the clients."""
        self._producer.close()
        self._consumer.close()


@contextmanager
def _probed(broker: Broker, rate: int) -> Iterator[Probe]:
    with topics(broker.bootstrap, SOURCE, SINK):
        probe = Probe(broker.bootstrap, rate)
        try:
            yield probe
        finally:
            probe.close()


@contextmanager
def _job(broker: Broker, program: str, **settings: Any) -> Iterator[Job]:
    application = f"benchmark-{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        try:
            yield Job(program, broker.bootstrap, SOURCE, SINK, application, directory, **settings)
        finally:
            delete_topics_of(broker.bootstrap, application)


def _latency(guarantee: str, commit_ms: int) -> Measure:
    def measure(contestant: Contestant, broker: Broker, options: Options) -> tuple[str, dict[str, float]]:
        with (
            _probed(broker, RATE) as probe,
            _job(broker, KEYS, guarantee=guarantee, commit_ms=commit_ms) as job,
            running(contestant, job) as one,
        ):
            _warm_up(probe, one)
            first = len(probe.sent)
            cpu = _cpu(one.pid)
            began = time.perf_counter()
            probe.run(lambda now: now >= options.seconds)
            used = (_cpu(one.pid) - cpu) / (time.perf_counter() - began)
            last = len(probe.sent)
            probe.run(lambda now: now >= _START_SECONDS or probe.has_read(first, last), writes=False)
            one.check()
            found = probe.latencies(first, last)
            if len(found) < last - first:
                raise UnavailableError(f"{last - first - len(found)} of {last - first} results did not come")
            p50, p99 = (found[int(share * len(found))] for share in (0.5, 0.99))
            memory = resident_megabytes(one.pid)
        return (
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {100 * used:.0f} % of a core, {memory:.0f} MB",
            {"p50_ms": p50, "p99_ms": p99, "cpu_share": used, "resident_mb": memory},
        )

    return measure


def _warm_up(probe: Probe, one: Running) -> None:
    """Write until results come, and some seconds longer."""
    started = time.perf_counter()
    while not probe.read:
        probe.run(lambda now: now > 1.0 or bool(probe.read))
        one.check()
        if time.perf_counter() - started > _START_SECONDS:
            raise UnavailableError(f"no result within {_START_SECONDS:.0f} s")
    probe.run(lambda now: now >= _WARM_SECONDS)


def _cpu(pid: int) -> float:
    return cpu_seconds_of([pid]) or 0.0


def resident_megabytes(pid: int) -> float:
    """Return the memory (MB) that a process and its descendants have resident; 0 where there is no /proc."""
    pages = 0
    for each in descendants(pid):
        pages += int((Path("/proc") / str(each) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# ---------------------------------------- throughput


def _word_count(threads: int) -> Measure:
    def measure(contestant: Contestant, broker: Broker, options: Options) -> tuple[str, dict[str, float]]:
        with topics(broker.bootstrap, SOURCE, SINK):
            fill(broker.bootstrap, SOURCE, "10,000 words", options.lines, WORDS_PER_LINE)
            with (
                _job(broker, WORDS, commit_ms=500, cache_bytes=CACHE_BYTES, threads=threads) as job,
                running(contestant, job) as one,
            ):
                with _Progress(broker, job, contestant.holds_back) as progress:
                    rate, cpu = _steady_rate(progress.done, options.lines * WORDS_PER_LINE, options.seconds, one)
                memory = resident_megabytes(one.pid)
        return (
            f"{rate:,.0f} words/s, {cpu * 1e6 / rate:.2f} CPU s / M words, {memory:.0f} MB",
            {"words_per_second": rate, "cpu_seconds_per_million_words": cpu * 1e6 / rate, "resident_mb": memory},
        )

    return measure


def _map(contestant: Contestant, broker: Broker, options: Options) -> tuple[str, dict[str, float]]:
    """Return how much faster two workers map than one processing thread, both over the same records."""
    rates = []
    with topics(broker.bootstrap, SOURCE):
        fill(broker.bootstrap, SOURCE, "10,000 words", options.lines, WORDS_PER_LINE)
        for threads in (1, 2):
            with (
                topics(broker.bootstrap, SINK),
                _job(broker, MAP, threads=threads) as job,
                running(contestant, job) as one,
                _Progress(broker, job, False) as progress,
            ):
                rates.append(_steady_rate(progress.done, options.lines, options.seconds, one)[0])
    one_thread, two_workers = rates
    return (
        f"{two_workers / one_thread:.2f} times: {one_thread:,.0f} and {two_workers:,.0f} records/s",
        {"ratio": two_workers / one_thread, "one_thread_per_second": one_thread, "two_workers_per_second": two_workers},
    )


class _Progress:
    """What is done: by what is written, or by what is committed where a cache holds back output. There, a word counts
    for half when its line is split and for half when it is counted: which step runs ahead does not matter."""

    def __init__(self, broker: Broker, job: Job, holds_back: bool) -> None:
        self._admin = ConfluentAdmin(client_config(broker.bootstrap))
        self._job = job
        self._holds_back = holds_back

    def done(self) -> int:
        if not self._holds_back:
            return self._ends(SINK)
        words = self._committed(SOURCE) * WORDS_PER_LINE
        return (words + self._committed(f"{self._job.application}-counts-store-repartition")) // 2

    def _committed(self, topic: str) -> int:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        committed = self._admin.committed_offsets(self._job.application, partitions, stable=False)
        return sum(each.offset for each in committed.values())

    def _ends(self, topic: str) -> int:
        return sum(self._admin.end_offsets([TopicPartition(topic, p) for p in range(PARTITIONS)]).values())

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *raised: object) -> None:
        self._admin.close()


def _steady_rate(progress: Callable[[], int], total: int, seconds: float, one: Running) -> tuple[float, float]:
    """Return what is done a second, and the CPU time a second, between two steps of progress: the first behind a share
    of the total, or two seconds after the beginning, and the last within `seconds` of it."""
    done, moved, began = 0, time.perf_counter(), 0.0
    opened: tuple[int, float, float] | None = None
    last: tuple[int, float, float] | None = None
    while done < total:
        now, found = time.perf_counter(), progress()
        if found > done:
            done, moved, began = found, now, began or now
            step = done, now, _cpu(one.pid)
            if opened is not None:
                last = step
            elif done >= _WARM_SHARE * total or now - began >= 2:
                opened = step
        one.check()
        if opened is not None and last is not None and now - opened[1] > seconds:
            break
        if now - moved > _STALLED_SECONDS + (0 if began else _START_SECONDS):
            raise UnavailableError(f"it stands still at {done} of {total}")
        time.sleep(0.02)
    if opened is None or last is None:
        raise UnavailableError(f"all {total} were one step of progress: give more --lines")
    window = last[1] - opened[1]
    return (last[0] - opened[0]) / window, (last[2] - opened[2]) / window


# ---------------------------------------- Penstock alone


def _restore(contestant: Contestant, broker: Broker, options: Options) -> tuple[str, dict[str, float]]:
    with topics(broker.bootstrap, SOURCE, SINK, partitions=1), _job(broker, KEYS) as job:
        changelog = f"{job.application}-counts-store-changelog"
        admin = ConfluentAdmin(client_config(broker.bootstrap))
        try:
            admin.create_topics([NewTopic(changelog, 1, config={"cleanup.policy": "compact"})])
        finally:
            admin.close()
        producer = ConfluentProducer(client_config(broker.bootstrap))
        for number in range(options.keys):
            producer.send(changelog, b"key%d" % number, number.to_bytes(8, "big"), 0)
        producer.close()
        with running(contestant, job) as one:
            wait_for(lambda: bool(one.events("restored")), one, 300, "the restore")
            (restored,) = one.events("restored")
    rate, cpu = restored["records"] / restored["seconds"], restored["records"] / restored["cpu"]
    return f"{rate:,.0f} keys/s, {cpu:,.0f} keys / CPU s", {"keys_per_second": rate, "keys_per_cpu_second": cpu}


def _hand_over(contestant: Contestant, broker: Broker, options: Options) -> tuple[str, dict[str, float]]:
    """Return the longest time without results of a partition after one of two instances, which stand by for each other,
    is closed."""
    with (
        _probed(broker, RATE // 10) as probe,
        _job(broker, KEYS, standbys=1) as job,
        tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as other,
        running(contestant, job) as leaving,
    ):
        _warm_up(probe, leaving)
        with running(contestant, replace(job, directory=other)) as staying:
            probe.run(lambda now: now >= max(options.seconds, 2 * _WARM_SECONDS))
            leaving.check()
            first, began = len(probe.sent), time.perf_counter()
            leaving.ask_to_end()
            probe.run(lambda now: now >= 2 * _WARM_SECONDS)
            last = len(probe.sent)
            probe.run(lambda now: now >= _START_SECONDS or probe.has_read(first, last), writes=False)
            staying.check()
    gaps = []
    for partition in range(PARTITIONS):
        read = sorted(probe.read[n] for n in range(first, last) if n in probe.read and n % PARTITIONS == partition)
        gaps += [later - earlier for earlier, later in pairwise([began, *read])]
    return f"{max(gaps):.2f} s without output", {"gap_seconds": max(gaps)}


def _imports(contestant: Contestant, broker: Broker, options: Options) -> tuple[str, dict[str, float]]:
    def seconds(code: str) -> float:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPATH"] = str(ROOT / "src")
        began = os.times()
        subprocess.run([sys.executable, "-c", f"{AS_INSTALLED}{code}"], env=environment, check=True)
        ended = os.times()
        return ended.children_user + ended.children_system - began.children_user - began.children_system

    code = "from penstock import KafkaStreams, StreamsBuilder, Serdes; import penstock.host.threads.host"
    took = min(seconds(code) for _ in range(_IMPORTS)) - min(seconds("pass") for _ in range(_IMPORTS))
    return f"{took:.2f} CPU s", {"cpu_seconds": took}


ROWS: Final = (
    Row("latency at least once", "p50 3 ms, p99 10 ms; 20 % of a core; 75 MB", _latency(AT_LEAST_ONCE, 1_000)),
    Row("latency exactly once, 100 ms", "p50 70 ms", _latency(EXACTLY_ONCE, 100)),
    Row("latency exactly once, 20 ms", "p50 25 ms", _latency(EXACTLY_ONCE, 20)),
    Row("words", "6 times Quix Streams, as fast as Java", _word_count(1)),
    Row("words on two cores", "10 times Quix Streams with one, as fast as Java with two threads", _word_count(2)),
    Row("map on two cores", "1.8 times one core", _map, own=True),
    Row("restore into LMDB", "500,000 keys/s", _restore, own=True),
    Row("hand-over to a standby", "1 s", _hand_over, own=True),
    Row("imports", "0.5 s", _imports, own=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments ask for."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    rows = [row for row in ROWS if _is_asked(row.name, parsed.only)]
    contestants = [each for each in CONTESTANTS if _is_asked(each.name, parsed.contestants)]
    if not rows or not contestants:
        names = "; ".join(row.name for row in ROWS), "; ".join(each.name for each in CONTESTANTS)
        parser.error(f"the rows are {names[0]}, and the contestants {names[1]}")
    options = Options(parsed.seconds, parsed.lines, parsed.keys)
    results = Results()
    with brokers(parsed.bootstrap, results.missing) as found:
        broker = next((each for each in found if each.name == parsed.broker), found[0])
        for row in rows:
            for contestant in contestants:
                if not row.own or contestant.name == PENSTOCK:
                    _measure(results, row, contestant, broker, options)
    print(json.dumps(asdict(results), indent=2) if parsed.json else "\n".join(table_lines(results)))
    if parsed.save and (rates := list(history_rates(results))):
        save(Run.of_now("threads", rates))
    return 0


def history_rates(results: Results) -> Iterator[Rate]:
    """Yield the rates of words."""
    for each in results.figures:
        if (rate := each.values.get("words_per_second")) is not None:
            name = "Penstock on threads" if each.contestant == PENSTOCK else each.contestant
            yield Rate(each.row, name, rate, "words/s", each.values["cpu_seconds_per_million_words"])


def _is_asked(name: str, beginnings: str | None) -> bool:
    return beginnings is None or name.startswith(tuple(beginnings.split(";")))


def _measure(results: Results, row: Row, contestant: Contestant, broker: Broker, options: Options) -> None:
    print(f"{row.name}: {contestant.name} ...", file=sys.stderr, flush=True)
    try:
        text, values = row.measure(contestant, broker, options)
    except (UnavailableError, StreamsError, OSError) as error:
        results.missing[f"{row.name}, {contestant.name}"] = str(error)
        return
    results.figures.append(Figure(row.name, contestant.name, broker.name, text, values, contestant.remark))
    print(f"    {text}", file=sys.stderr, flush=True)


def table_lines(results: Results) -> list[str]:
    """Return the table, and what is missing."""
    lines = ["| row | contestant | broker | | remark |", "|---|---|---|---|---|"]
    lines += [
        f"| {each.row} | {each.contestant} | {each.broker} | {each.text} | {each.remark} |" for each in results.figures
    ]
    lines += [
        f"| aim: {row.name} | | | {row.aim} | |" for row in ROWS if any(f.row == row.name for f in results.figures)
    ]
    return lines + [f"missing: {what}: {why}" for what, why in results.missing.items()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="rows, by the beginning of their names, with semicolons between")
    parser.add_argument("--contestants", help="by the beginning of their names, with semicolons between")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each row with a latency (%(default)s)")
    parser.add_argument("--lines", type=int, default=400_000, help="of five words, to be counted (%(default)s)")
    parser.add_argument("--keys", type=int, default=1_000_000, help="to be restored (%(default)s)")
    parser.add_argument("--broker", default="Kafka", help="Kafka or 'embedded broker' (%(default)s)")
    parser.add_argument("--bootstrap", help="use this Kafka, and start no broker")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--save", action="store_true", help="write the rates of words into benchmarks/history")
    return parser


if __name__ == "__main__":
    sys.exit(main())
