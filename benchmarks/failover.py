"""Measures how long output stands still when a broker dies: a plain transactional producer beside Penstock on Spark.

    python benchmarks/failover.py [--kills N] [--only leader,coordinator] [--json]

A Kafka of three brokers, whose session times out after four seconds. Side by side run, each with one transactional id
and one output partition,

    plain       confluent-kafka: one record a transaction, in a loop; a failed transaction is aborted and written again,
                and after a fatal error comes a new producer
    Penstock    the word count on Spark, exactly once, over existing input, in small epochs

Both outputs have the same leader, and both transactional ids the same coordinator. One of these two brokers is killed
(SIGKILL), N times in turn, and comes back when both have written again. A gap is the longest time between two records
of an output that stand side by side in its log, by the brokers' clock; records of aborted transactions do not count.
For Penstock the table also says where the gap went: before the epoch was planned, or in which part of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.on_spark import application
from benchmarks.program import word_count
from benchmarks.topics import client_config
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.producer import ConfluentProducer
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.record import TopicPartition
from tests.support.kafka import RealKafka

VICTIMS: Final = ("leader", "coordinator")
APPLICATION: Final = "benchmark-failover"
INPUT, COUNTS, PLAIN = "failover-lines", "failover-counts", "failover-plain"
_LINES: Final = 200_000
_SETTINGS: Final = {
    "penstock.batch.max.bytes": 2_000,
    "penstock.manifests.retained": 100_000,  # all are read at the end
    "penstock.poll.ms": 20,
    "penstock.spark.partitions": 1,
}
_TRANSACTION_PARTITIONS: Final = 4  # of __transaction_state, as RealKafka sets it
_SETTLED: Final = 10
"""Transactions of each contestant between two kills, and after the last."""
_PATIENCE_SECONDS: Final = 180.0
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Gap:
    """What one kill did. plain, penstock: the longest gap after it, in seconds; planning, tasks, commit: the parts of
    the epoch that ended Penstock's."""

    victim: str
    broker: int
    plain: float
    penstock: float
    planning: float
    tasks: float
    commit: float

    @property
    def ratio(self) -> float:
        """How many times the plain producer's gap Penstock's is."""
        return self.penstock / self.plain


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    options = _parser().parse_args(arguments)
    victims = options.only.split(",")
    if unknown := set(victims) - set(VICTIMS):
        print(f"--only knows {', '.join(VICTIMS)}; not {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    with RealKafka(3, settings={"broker.session.timeout.ms": "4000"}) as kafka:
        usual, gaps = _measure(kafka, [victims[number % len(victims)] for number in range(options.kills)])
    if options.json:
        print(json.dumps({"usual": usual, "gaps": [{**asdict(gap), "ratio": gap.ratio} for gap in gaps]}, indent=2))
    else:
        print(_as_text(usual, gaps))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=6, help="(%(default)s)")
    parser.add_argument("--only", default=",".join(VICTIMS), help="whom to kill, in turn (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _measure(kafka: RealKafka, victims: Sequence[str]) -> tuple[dict[str, float], list[Gap]]:
    """Return the longest gaps (s) of each contestant before the first kill, and those after each kill."""
    bootstrap = kafka.bootstrap_servers
    _make_topics(bootstrap)
    kills: list[tuple[str, int, float]] = []
    with ExitStack() as running:
        directory = running.enter_context(TemporaryDirectory(prefix="penstock-benchmark-"))
        checkpoint = Checkpoint(f"{directory}/checkpoint")
        settings = {**_SETTINGS, "penstock.checkpoint.dir": checkpoint.uri}
        streams = running.enter_context(application(word_count(INPUT, COUNTS), bootstrap, APPLICATION, **settings))
        streams.start()
        with _plain_producer(bootstrap) as written:
            progress = (written, lambda: int(streams.statistics().get("epoch", 0)))
            _wait_for_transactions(progress)  # JVM, workers and producers are warm behind these
            begun = time.time()
            _wait_for_transactions(progress)
            for victim in victims:
                broker = kafka.leader(*_led(victim))
                kills.append((victim, broker, time.time()))
                print(f"killing broker {broker}, the {victim} ...", file=sys.stderr, flush=True)
                kafka.kill(broker)
                _wait_for_transactions(progress)
                kafka.resume(broker)
                _wait(kafka.all_in_sync, "all replicas are in sync")
                _wait_for_transactions(progress)
            ended = time.time()
        epochs = range(1, checkpoint.last_epoch() + 1)
        manifests = [found for epoch in epochs if (found := checkpoint.read_manifest(epoch, "")) is not None]
        times = {"plain": _times(bootstrap, PLAIN), "Penstock": _times(bootstrap, COUNTS)}
    usual = {name: _longest(found, begun, kills[0][2])[1] for name, found in times.items()}
    ends = [at for _, _, at in kills[1:]] + [ended]
    return usual, [
        _gap(victim, broker, times, manifests, at, end) for (victim, broker, at), end in zip(kills, ends, strict=True)
    ]


# ---------- topics and brokers


def _make_topics(bootstrap: str) -> None:
    """Make topics of one partition with the same leader and followers, and fill the input."""
    by_broker = {"message.timestamp.type": "LogAppendTime"}
    client = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, replica_assignment=[[1, 2, 3]], config=by_broker) for name in (INPUT, COUNTS, PLAIN)]
    for future in client.create_topics(topics).values():
        future.result(60)
    producer = ConfluentProducer(client_config(bootstrap))
    for number in range(_LINES):
        producer.send(INPUT, None, b"a word%d b" % (number % 1000), 0)
    producer.close()


def _led(victim: str) -> tuple[str, int]:
    """Return the partition whose leader is to be killed."""
    if victim == "leader":
        return COUNTS, 0
    return "__transaction_state", _coordinating(_SINK)


def _coordinating(transactional_id: str) -> int:
    """Return the partition of __transaction_state whose leader coordinates: Kafka takes Java's hash of the text."""
    number = 0
    for letter in transactional_id:
        number = (31 * number + ord(letter)) & 0xFFFFFFFF
    return (number & 0x7FFFFFFF) % _TRANSACTION_PARTITIONS


_SINK: Final = f"{APPLICATION}-sink-0"
_PLAIN_ID: Final = next(
    each for each in (f"plain-{number}" for number in range(1000)) if _coordinating(each) == _coordinating(_SINK)
)


# ---------- the contestants


def _wait_for_transactions(contestants: Sequence[Callable[[], int]]) -> None:
    """Wait until each contestant has committed some more."""
    goals = [committed() + _SETTLED for committed in contestants]
    _wait(
        lambda: all(committed() >= goal for committed, goal in zip(contestants, goals, strict=True)),
        f"both contestants have written {_SETTLED} transactions",
    )


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Not within {_PATIENCE_SECONDS:.0f} s: {what}")
        time.sleep(_LOOK_SECONDS)


@contextmanager
def _plain_producer(bootstrap: str) -> Iterator[Callable[[], int]]:
    """Write transactions of one record in a thread; give what says how many are committed."""
    over, committed = threading.Event(), [0]

    def run() -> None:
        while not over.is_set():
            with suppress(KafkaException):
                _write_until_fatal(bootstrap, over, committed)

    thread = threading.Thread(target=run, name="plain-producer")
    thread.start()
    try:
        yield lambda: committed[0]
    finally:
        over.set()
        thread.join()


def _write_until_fatal(bootstrap: str, over: threading.Event, committed: list[int]) -> None:
    """Write with one producer until it is `over`; raises KafkaException if another one is needed."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": _PLAIN_ID, "linger.ms": 0, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    while not over.is_set():
        try:
            producer.begin_transaction()
            producer.produce(PLAIN, b"%d" % committed[0], partition=0)
            _retried(lambda: producer.commit_transaction(30))
            committed[0] += 1
        except KafkaException as error:
            code: KafkaError = error.args[0]
            if not code.txn_requires_abort():
                raise
            _retried(lambda: producer.abort_transaction(30))


def _retried(action: Callable[[], object]) -> None:
    while True:
        try:
            action()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


# ---------- gaps


def _gap(
    victim: str,
    broker: int,
    times: dict[str, list[float]],
    manifests: Sequence[Manifest],
    begin: float,
    end: float,
) -> Gap:
    _, plain = _longest(times["plain"], begin, end)
    since, penstock = _longest(times["Penstock"], begin, end)
    # the epoch that ended the gap: the first that was committed after its last record
    epoch = next(each for each in manifests if each.committed_ms / 1000 >= since + penstock)
    before = next(each for each in reversed(manifests) if each.epoch < epoch.epoch)
    ran = (epoch.committed_ms - epoch.planned_ms - epoch.commit_ms) / 1000
    planning = (epoch.planned_ms - before.committed_ms) / 1000
    return Gap(victim, broker, plain, penstock, planning, ran, epoch.commit_ms / 1000)


def _longest(times: Sequence[float], begin: float, end: float) -> tuple[float, float]:
    """Return where the longest gap that ends in a time begins, and how long it is, in seconds."""
    pairs = [(after - before, before) for before, after in pairwise(times) if begin <= after <= end]
    length, since = max(pairs)
    return since, length


def _times(bootstrap: str, topic: str) -> list[float]:
    """Return when the committed records of a topic were appended, in s."""
    partition = TopicPartition(topic, 0)
    admin, fetcher = ConfluentAdmin(client_config(bootstrap)), ConfluentFetcher(client_config(bootstrap))
    try:
        end = admin.end_offsets([partition], read_committed=True)[partition]
        batches = fetcher.fetch(partition, 0, end, read_committed=True)
        return [time_ms / 1000 for batch in batches for time_ms in batch.timestamps.tolist()]
    finally:
        fetcher.close()
        admin.close()


# ---------- what is printed


def _as_text(usual: dict[str, float], gaps: Sequence[Gap]) -> str:
    lines = [
        f"Longest gap before the first kill: plain {usual['plain']:.2f} s, Penstock {usual['Penstock']:.2f} s.",
        "",
        "| killed | broker | plain, s | Penstock, s | ratio | until planned, s | tasks, s | commit, s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {gap.victim} | {gap.broker} | {gap.plain:.1f} | {gap.penstock:.1f} | {gap.ratio:.2f} "
        f"| {gap.planning:.1f} | {gap.tasks:.1f} | {gap.commit:.1f} |"
        for gap in gaps
    ]
    plain, penstock = (statistics.median(each) for each in ([g.plain for g in gaps], [g.penstock for g in gaps]))
    lines.append(f"| median | | {plain:.1f} | {penstock:.1f} | {penstock / plain:.2f} | | | |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
