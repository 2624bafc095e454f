"""Calls to a service that answers after 10 ms: one after another, side by side, and in batches; and commits meanwhile.

    python -m benchmarks.calls
    python -m benchmarks.calls --records 20000 --capacity 200

The service is an HTTP stub in a process of its own, which takes another 0.05 ms for each record. The application runs
on the threads host with the embedded broker. The rate is that of committed results, from the first to the last. It
prints two tables.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from itertools import islice, pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from benchmarks.topics import topics
from penstock import Calls, Consumed, KafkaStreams, KStream, Produced, Serdes, StreamsBuilder, Topology, vectorized
from penstock_broker.process import BrokerProcess

COMMIT_MS = 100
BATCH_SIZE = 64
SECONDS_PER_RECORD = 0.000_05
SAME_COMMIT_SECONDS = 0.02  # a reader sees the records of one commit in more than one step
TIMEOUT_SECONDS = 300


class _Stub(asyncio.Protocol):
    """Answers each request of a connection after a while, and a while for each of the records that its path tells."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        records = int(data[: data.index(b" HTTP")].removeprefix(b"GET /"))
        asyncio.get_running_loop().call_later(self._seconds + records * SECONDS_PER_RECORD, self._answer)

    def _answer(self) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n42")


def serve(seconds: float, ready: Connection) -> None:
    """Run the stub, and send its port to `ready`."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: _Stub(seconds), "127.0.0.1", 0, backlog=1_000)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


class Connections:
    """Open connections to the stub: the cheapest HTTP client, so that the calls cost more than the client."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def get(self, records: int = 1) -> int:
        """Return the number in the answer of the stub for a request with a number of records."""
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % records)
        await reader.readuntil(b"\r\n\r\n")
        number = int(await reader.readexactly(2))
        self._free.append((reader, writer))
        return number

    def close(self) -> None:
        """Close the connections."""
        for _, writer in self._free:
            writer.close()


def opener(port: int) -> Callable[[], Any]:
    """Return a function that opens the connections to `port`."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Connections]:
        connections = Connections(port)
        yield connections
        connections.close()

    return opened


async def ask(value: int, *, client: Connections) -> int:
    """Return the answer of the stub, and the value."""
    return value + await client.get()


@vectorized
async def ask_together(values: list[int], *, client: Connections) -> list[int]:
    """Return the answer of the stub to one request for all values, and each value."""
    number = await client.get(len(values))
    return [value + number for value in values]


def asked(stream: KStream[int, int], port: int, capacity: int) -> KStream[int, int]:
    """Return the answers to a call for each record."""
    calls = Calls(capacity=capacity, open=opener(port), order="unordered")
    return stream.map_values(ask, named="ask", calls=calls)


def asked_together(stream: KStream[int, int], port: int, capacity: int) -> KStream[int, int]:
    """Return the answers to calls for up to 64 records."""
    calls = Calls(capacity=capacity, open=opener(port), order="unordered", batch_size=BATCH_SIZE)
    return stream.map_values(ask_together, named="ask", calls=calls)


Operator = Callable[[KStream[int, int], int, int], KStream[int, int]]
"""Adds the calls to a stream, with the port of the stub and the capacity."""


def topology(
    source: str, sink: str, passed: str, operator: Callable[[KStream[int, int]], KStream[int, int]]
) -> Topology:
    """Return the topology: the calls, and beside them the records as they are."""
    long = Serdes.long()
    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed.with_(long, long))
    operator(stream).to(sink, Produced.with_(long, long))
    stream.to(passed, Produced.with_(long, long))
    return builder.build()


@contextmanager
def application(
    bootstrap: str, operator: Callable[[KStream[int, int]], KStream[int, int]]
) -> Iterator[tuple[str, str, str]]:
    """Run the application during a `with` block, and give the names of its topics."""
    name = f"calls-{time.monotonic_ns()}"
    source, sink, passed = (f"{name}-{what}" for what in ("in", "out", "passed"))
    with topics(bootstrap, source, sink, passed, partitions=1), tempfile.TemporaryDirectory() as directory:
        config = {
            "application.id": name,
            "bootstrap.servers": bootstrap,
            "penstock.host": "threads",
            "state.dir": directory,
            "commit.interval.ms": COMMIT_MS,
            "processing.guarantee": "exactly_once_v2",
            "auto.offset.reset": "earliest",
        }
        with KafkaStreams(topology(source, sink, passed, operator), config):
            yield source, sink, passed


def rate(bootstrap: str, port: int, records: int, capacity: int, calls: Operator = asked) -> float:
    """Return the results per second, from the first to the last that is committed."""
    with application(bootstrap, lambda stream: calls(stream, port, capacity)) as (source, sink, _):
        for number in range(records):
            _send(bootstrap, source, number)
        _producer(bootstrap).flush()
        times = list(islice(arrivals(bootstrap, sink), records))
    return sum(each > times[0] for each in times) / (times[-1] - times[0])  # those of the first commit came before


def commit_gaps(bootstrap: str, port: int, capacity: int, records: int = 500) -> list[float]:
    """Return the seconds between commits, as a reader sees them, while `capacity` slow calls are in flight."""
    with application(bootstrap, lambda stream: asked(stream, port, capacity)) as (source, _, passed):
        for number in range(2 * capacity):  # as many wait as are called
            _send(bootstrap, source, number)
        seen = arrivals(bootstrap, passed)
        list(islice(seen, 2 * capacity))
        with ThreadPoolExecutor(1) as writer:
            writer.submit(_send_slowly, bootstrap, source, records)
            times = list(islice(seen, records))
    return [late - early for early, late in pairwise(times) if late - early > SAME_COMMIT_SECONDS]


@cache
def _producer(bootstrap: str) -> Producer:
    return Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "log_level": 0}
    )


def _send(bootstrap: str, topic: str, number: int) -> None:
    _producer(bootstrap).produce(topic, number.to_bytes(8, "big"), number.to_bytes(8, "big"))


def _send_slowly(bootstrap: str, topic: str, records: int) -> None:
    for number in range(records):
        _send(bootstrap, topic, number)
        _producer(bootstrap).poll(0)
        time.sleep(0.01)
    _producer(bootstrap).flush()


def arrivals(bootstrap: str, topic: str) -> Iterator[float]:
    """Yield the time of each committed record of `topic`, in seconds of the monotonic clock; raises TimeoutError."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 5, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        while time.monotonic() < deadline:
            messages = consumer.consume(10_000, 0.005)
            now = time.monotonic()
            yield from (now for message in messages if message.error() is None)
    finally:
        consumer.close()
    raise TimeoutError(f"Topic {topic} did not receive all records in {TIMEOUT_SECONDS} s.")


@contextmanager
def stub(seconds: float) -> Iterator[int]:
    """Run the service during a `with` block, and give its port."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=serve, args=(seconds, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def main(
    records: Annotated[int, typer.Option(help="Records of the run with calls side by side.")] = 10_000,
    capacity: Annotated[int, typer.Option(help="Calls side by side.")] = 100,
    serial: Annotated[int, typer.Option(help="Records of the run with one call at a time.")] = 300,
) -> None:
    """Run the benchmark and print its tables."""
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        bootstrap = broker.bootstrap_servers
        with stub(0.01) as port:
            one, many = rate(bootstrap, port, serial, 1), rate(bootstrap, port, records, capacity)
            batches = rate(bootstrap, port, records, 1, asked_together)
        with stub(2.0) as port:
            gaps = [1_000 * gap for gap in commit_gaps(bootstrap, port, capacity)]
    rates = Table("capacity", "records a call", "records per second", "times the first row", title="Calls of 10 ms")
    for side_by_side, size, found in ((1, 1, one), (capacity, 1, many), (1, BATCH_SIZE, batches)):
        rates.add_row(f"{side_by_side}", f"{size}", f"{found:,.0f}", f"{found / one:.1f}")
    commits = Table("p50", "p99", "commit.interval.ms", title="Time between commits during calls of 2 s")
    commits.add_row(*(f"{np.percentile(gaps, share):.0f} ms" for share in (50, 99)), f"{COMMIT_MS} ms")
    console = Console()
    console.print(rates)
    console.print(commits)


if __name__ == "__main__":
    typer.run(main)
