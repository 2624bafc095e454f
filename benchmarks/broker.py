"""Measures the embedded broker beside a real Kafka, each row on both in one run.

    python benchmarks/broker.py [--only ROW,...] [--bootstrap host:9092] [--json]

Brokers and topics are made and removed. Each row runs ROUNDS times on each broker, in turn; the median counts. A row is
an entry of ROWS: a function that takes a broker and returns its figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from benchmarks.load_clients import ConfluentClient, JavaClient, Load, LoadClient
from benchmarks.measuring import cpu_seconds_of, descendants
from benchmarks.running import EMBEDDED, Broker, brokers
from benchmarks.topics import topics
from penstock_broker.process import BrokerProcess
from tests.support.kafka import LONG_LIVED, KafkaUnavailableError, RealKafka

ROUNDS: Final = 3
_TRANSACTIONS: Final = 300
_WARM_UP_TRANSACTIONS: Final = 30
_RECORDS: Final = 100
_VALUE: Final = b"v" * 100
_TAILING_CONSUMERS: Final = 20
_TAILED_PARTITIONS: Final = 10
_TAILED_SECONDS: Final = 10.0
_TIMEOUT_SECONDS: Final = 30


@dataclass(frozen=True)
class Figure:
    """What was measured once, or the median of several.

    Args:
        row: how the table calls it.
        value: the figure.
        unit: its unit; smaller is better unless it is a rate.
        cpu_us: CPU time (us) of the broker per record; None where it was not measured.
    """

    row: str
    value: float
    unit: str
    cpu_us: float | None = None


@dataclass(frozen=True)
class Row:
    """Something that is measured.

    Args:
        name: how `--only` calls it.
        measure: takes a broker, and returns the figures.
        warm_up_rounds: how often it runs on each broker before it counts; JVMs compile what they have run for a while.
    """

    name: str
    measure: Callable[[Broker], list[Figure]]
    warm_up_rounds: int = 0


@dataclass(frozen=True)
class Measurement(Figure):
    """The figure of one row on one broker: the median of its rounds."""

    broker: str = ""


def transactions(broker: Broker, name: str, has_offsets: bool) -> list[Figure]:
    """Return the time (ms) of a transaction of 100 records of 100 bytes, with confluent-kafka.

    Args:
        broker: the broker.
        name: the row.
        has_offsets: whether each also commits an offset of a group.
    """
    topic, bootstrap = f"transactions-{uuid.uuid4().hex[:8]}", broker.bootstrap
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
    return [Figure(name, 1_000 * seconds / _TRANSACTIONS, "ms")]


def produce_and_consume(broker: Broker, client: LoadClient, load: Load) -> list[Figure]:
    """Return the records per second that a client produces, and then consumes.

    Args:
        broker: the broker.
        client: the client.
        load: the records.
    """
    topic, figures = f"load-{uuid.uuid4().hex[:8]}", []
    with topics(broker.bootstrap, topic, partitions=load.partitions):
        for what, run in (("produce", client.produce), ("consume", client.consume)):
            before = _cpu_seconds(broker)
            rate = run(broker.bootstrap, topic, load)
            used = _cpu_seconds(broker) - before
            cpu_us = 1e6 * used / load.records if broker.pid is not None else None
            figures.append(Figure(f"{what} {load.name}, {client.name}", rate, "records/s", cpu_us))
    return figures


def _cpu_seconds(broker: Broker) -> float:
    return (cpu_seconds_of([broker.pid]) or 0.0) if broker.pid is not None else 0.0


def tailing(broker: Broker, name: str, rate: int) -> list[Figure]:
    """Return the CPU time of a broker (% of a core) while consumers wait for the next records of the same partitions.

    Args:
        broker: the broker; without figures where its processes are not known.
        name: the row.
        rate: records per second over all partitions.
    """
    if broker.pid is None:
        return []
    topic, bootstrap = f"tailed-{uuid.uuid4().hex[:8]}", broker.bootstrap
    with topics(bootstrap, topic, partitions=_TAILED_PARTITIONS), ExitStack() as closing:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        consumers = []
        for number in range(_TAILING_CONSUMERS):
            consumers.append(Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-{number}"}))
            closing.callback(consumers[-1].close)
            consumers[-1].assign([Position(topic, partition, 0) for partition in range(_TAILED_PARTITIONS)])
        _send_and_receive(producer, consumers, topic, rate, _TAILED_PARTITIONS)  # now all of them wait
        before, began = _cpu_seconds(broker), time.perf_counter()
        _send_and_receive(producer, consumers, topic, rate, int(rate * _TAILED_SECONDS))
        seconds = time.perf_counter() - began
        used = _cpu_seconds(broker) - before
    return [Figure(name, 100 * used / seconds, "% of a core")]


def _send_and_receive(producer: Producer, consumers: Sequence[Consumer], topic: str, rate: int, records: int) -> None:
    began = time.perf_counter()
    for number in range(records):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        producer.produce(topic, _VALUE, partition=number % _TAILED_PARTITIONS)
        producer.poll(0)
    producer.flush(_TIMEOUT_SECONDS)
    for consumer in consumers:
        count = 0
        while count < records:
            messages = consumer.consume(records - count, _TIMEOUT_SECONDS)
            if not messages:
                raise TimeoutError(f"{count} of {records} records came to a consumer")
            count += len(messages)


def start(broker: Broker) -> list[Figure]:
    """Return how long a new broker of the same kind takes to start (s), and its memory (MB) when it has nothing to do.

    Args:
        broker: the broker; without figures where it was not started here.
    """
    if broker.pid is None:
        return []
    with ExitStack() as running:
        if broker.name == EMBEDDED:
            embedded = BrokerProcess(Path(running.enter_context(tempfile.TemporaryDirectory())))
            running.callback(embedded.stop)
            began = time.perf_counter()
            embedded.start()
            seconds = time.perf_counter() - began
            bootstrap, pid = embedded.bootstrap_servers, embedded.pid
        else:
            kafka = RealKafka(java_options=LONG_LIVED)
            running.callback(kafka.close)
            began = time.perf_counter()
            kafka.start()
            seconds = time.perf_counter() - began
            bootstrap, pid = kafka.bootstrap_servers, kafka.pid
        assert pid is not None
        AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=_TIMEOUT_SECONDS)
        resident = sum(_resident_bytes(process) for process in descendants(pid))
    return [Figure("start", seconds, "s"), Figure("memory of an idle broker", resident / 1e6, "MB")]


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


LOADS: Final = tuple(
    Load(value_bytes, partitions, compression)
    for value_bytes in (100, 1_000)
    for partitions in (1, 100)
    for compression in ("none", "lz4")
)

_TRANSACTION: Final = "transaction of 100 records"
_TRANSACTION_WITH_OFFSET: Final = "transaction of 100 records and an offset"
_TAILING: Final = f"{_TAILING_CONSUMERS} consumers tail {_TAILED_PARTITIONS} partitions at {{}} records/s"

ROWS: Final = (
    Row("start", start, warm_up_rounds=1),  # the first one may compile modules
    Row(_TRANSACTION, partial(transactions, name=_TRANSACTION, has_offsets=False)),
    Row(_TRANSACTION_WITH_OFFSET, partial(transactions, name=_TRANSACTION_WITH_OFFSET, has_offsets=True)),
    *(Row(_TAILING.format(rate), partial(tailing, name=_TAILING.format(rate), rate=rate)) for rate in (100, 1_000)),
)


def load_rows(client: LoadClient) -> list[Row]:
    """Return the rows of a client: each produces and consumes one load."""
    return [
        Row(f"{client.name}: {load.name}", partial(produce_and_consume, client=client, load=load), warm_up_rounds=1)
        for load in LOADS
    ]


def measure(row: Row, running: Sequence[Broker]) -> list[Measurement]:
    """Measure one row on the brokers of a run.

    Args:
        row: what is measured.
        running: the brokers. They take turns, so that a busy machine slows all.
    """
    rounds = [[row.measure(broker) for broker in running] for _ in range(row.warm_up_rounds + ROUNDS)]
    of_brokers = zip(running, zip(*rounds[row.warm_up_rounds :], strict=True), strict=True)
    return [_median(broker, same) for broker, figures in of_brokers for same in zip(*figures, strict=True)]


def _median(broker: Broker, figures: Sequence[Figure]) -> Measurement:
    cpu_us = [figure.cpu_us for figure in figures if figure.cpu_us is not None]
    return Measurement(
        row=figures[0].row,
        value=round(statistics.median(figure.value for figure in figures), 3),
        unit=figures[0].unit,
        cpu_us=round(statistics.median(cpu_us), 3) if cpu_us else None,
        broker=broker.name,
    )


def table_lines(measurements: Sequence[Measurement]) -> list[str]:
    """Return lines of a table with a column for each broker."""
    cells: dict[str, list[str]] = {}
    for one in measurements:
        cells.setdefault(one.row, []).append(_cell(one))
    return [f"| {row} | {' | '.join(of_brokers)} |" for row, of_brokers in cells.items()]


def _cell(one: Measurement) -> str:
    value = f"{one.value:,.0f}" if one.value >= 1_000 else f"{one.value:.3g}"
    cpu = "" if one.cpu_us is None else f" ({one.cpu_us:.2f})"
    return f"{value}{cpu} {one.unit}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="rows by the beginning of their names, by commas")
    parser.add_argument("--bootstrap", help="a Kafka of your own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    missing: dict[str, str] = {}
    with ExitStack() as clients:
        loads = load_rows(ConfluentClient())
        try:
            loads += load_rows(clients.enter_context(JavaClient()))
        except KafkaUnavailableError as error:
            missing["the Java client"] = str(error)
        rows = [row for row in (*ROWS, *loads) if row.name.startswith(wanted)]
        if not rows:
            parser.error(f"rows are {', '.join(row.name for row in (*ROWS, *loads))}")
        running = clients.enter_context(brokers(options.bootstrap, missing))
        if not options.json:
            print(f"| row | {' | '.join(broker.name for broker in running)} |\n|---|{'---:|' * len(running)}")
        measurements: list[Measurement] = []
        for row in rows:
            try:
                found = measure(row, running)
            except Exception as error:  # the other rows count nevertheless
                missing[row.name] = f"{type(error).__name__}: {error}"
                continue
            measurements += found
            if found and not options.json:
                print("\n".join(table_lines(found)), flush=True)
    if options.json:
        print(json.dumps({"measurements": [asdict(one) for one in measurements], "missing": missing}, indent=2))
        return 0
    for what, why in missing.items():
        print(f"not measured: {what}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
