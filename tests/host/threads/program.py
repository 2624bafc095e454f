"""One instance of a small program on the threads host, as a process of its own: runs until its standard input ends.

python -m tests.host.threads.program SERVERS APPLICATION STATE_DIR SOURCE SINK SETTINGS PROGRAM

SETTINGS: further configuration, as JSON. PROGRAM: a key of PROGRAMS.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock import Backoff, Park, Retry, model, vectorized
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.calls import Calls
from penstock.dsl.options import Grouped, Materialized, Produced
from penstock.errors import CallFailedError
from penstock.host.threads.host import ThreadsHost
from penstock.plan.topology import built_topology
from penstock.processor.api import Processor, ProcessorContext
from penstock.processor.calls import NOT_CALLED, CallContext, NotCalled
from penstock.record import Record
from penstock.serdes import Serdes
from penstock.state.stores import Stores
from penstock.windows import TimeWindows
from tests.host.threads.support import Listening

CAPACITY, BATCH_SIZE = 5, 3
CALLS_FILE = "TEST_CALLS_FILE"
"""The environment variable with the path of the file of calls."""


def counts(builder: StreamsBuilder, source: str, sink: str) -> None:
    """Write the count of each word."""
    words = builder.stream(source).flat_map_values(str.split)
    counted = words.group_by(lambda _, word: word).count()
    counted.to_stream().to(sink, _LONGS)


def largest(builder: StreamsBuilder, source: str, sink: str) -> None:
    """Of lines such as "word 5", write each number, and the largest number of each word: a line that is processed twice
    changes nothing."""
    lines = builder.stream(source).map(lambda _, line: (line.split()[0], int(line.split()[1])))
    lines.select_key(lambda _, number: f"line {number}").to(sink, _LONGS)
    most = lines.group_by_key(Grouped.with_(Serdes.string(), Serdes.long())).reduce(max)
    most.to_stream().select_key(lambda word, _: f"most {word}").to(sink, _LONGS)


SHIFT = 1_000_000


class Numbering(Processor):
    """Forwards each line, a number below SHIFT, with its place among those of the task: place * SHIFT + line."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._places = context.get_state_store("places")

    def process(self, record: Record[Any, Any]) -> None:
        place = (self._places.get("last") or 0) + 1
        self._places.put("last", place)
        partition = str(self.context.task_id).rpartition("_")[2]
        self.context.forward(Record(partition, place * SHIFT + int(record.value), record.timestamp))


def everywhere(builder: StreamsBuilder, source: str, sink: str) -> None:
    """Write each line once for each task."""
    places = Stores.persistent_key_value_store("places")
    builder.add_state_store(Stores.key_value_store_builder(places, Serdes.string(), Serdes.long()))
    builder.stream(source).broadcast().process(Numbering, "places").to(sink, _LONGS)


def expiring(builder: StreamsBuilder, source: str, sink: str) -> None:
    """Write the counts of each word in windows, the lines that are too late for them, and each line again, with a
    delete if the word does not come back in time."""
    texts = Produced.with_(Serdes.string(), Serdes.string())
    lines = builder.stream(source)
    windows = lines.group_by_key().windowed_by(TimeWindows.of_size_and_grace(500, 100))
    counted = windows.count(Materialized.as_("windows")).late_to(sink)
    counted.to_stream().map(lambda word, count: (f"{word.key} from {word.window.start}", str(count))).to(sink, texts)
    last = lines.to_table(materialized=Materialized.as_("last").with_ttl(1_000))
    last.to_stream().map(lambda word, line: (f"last {word}", f"{line}")).to(sink, texts)


def noted(*keys: str) -> list[str]:
    """Note calls in a file by their keys, and return a receipt for each that no other call has."""
    receipts = [uuid.uuid4().hex for _ in keys]
    with Path(os.environ[CALLS_FILE]).open("a") as file:
        file.write("".join(f"{key} {receipt}\n" for key, receipt in zip(keys, receipts, strict=True)))
    return receipts


async def paid(value: str, *, call: CallContext) -> str:
    """Note the call, and return the record with its receipt."""
    (receipt,) = noted(call.idempotency_key)
    await asyncio.sleep(0.002)
    return f"{value} {receipt}"


async def paid_in_the_end(value: str, *, call: CallContext) -> str:
    """As `paid`, but the service refuses the first attempts of some records."""
    if call.attempt <= call.offset % 3:
        raise ConnectionError("The service is busy.")
    return await paid(value, call=call)


@vectorized
async def paid_together(values: list[str], *, calls: list[CallContext]) -> list[str]:
    """As `paid`, for several records."""
    receipts = noted(*(call.idempotency_key for call in calls))
    await asyncio.sleep(0.002)
    return [f"{value} {receipt}" for value, receipt in zip(values, receipts, strict=True)]


@model(batch_size=BATCH_SIZE)
def payer() -> Callable[..., list[str]]:
    """Return a model that does the same, and notes the records."""

    def pay(values: list[str]) -> list[str]:
        return [f"{value} {receipt}" for value, receipt in zip(values, noted(*values), strict=True)]

    return pay


async def receipt_of(value: str, *, call: CallContext) -> str | NotCalled:
    """Return the receipt that the file has for a call."""
    for line in Path(os.environ[CALLS_FILE]).read_text().splitlines():
        key, _, receipt = line.partition(" ")
        if key == call.idempotency_key:
            return f"{value} {receipt}"
    return NOT_CALLED


async def half_paid(value: str, *, call: CallContext) -> str:
    """As `paid`, but fail with the receipt of each second line."""
    receipt = await paid(value, call=call)
    if int(value[1:]) % 2:
        raise ValueError(receipt)
    return receipt


def paying(function: Callable[..., Any], options: Calls) -> Callable[[StreamsBuilder, str, str], None]:
    """Return a program that writes each line with the receipt of its call."""

    def calls(builder: StreamsBuilder, source: str, sink: str) -> None:
        receipts = builder.stream(source).map_values(function, named="pay", calls=options)
        receipts.to(sink, Produced.with_(Serdes.string(), Serdes.string()))

    return calls


class Paying(Processor[str, str, str, str]):
    """Pays for each line, and counts its receipts in a store, so that an answer that is used twice shows."""

    function: Callable[..., Awaitable[str]] = staticmethod(paid)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._receipts = context.get_state_store("receipts")

    def process(self, record: Record[str, str]) -> None:
        self.context.call(self.function, record.value)

    def answered(self, record: Record[str, str], answer: str) -> None:
        before = self._receipts.get(record.value)
        self._receipts.put(record.value, answer)
        self.context.forward(record.with_value(answer if before is None else f"again: {answer}"))


class HalfPaying(Paying):
    """Takes the receipt of a failed payment from its error."""

    function = staticmethod(half_paid)

    def failed(self, record: Record[str, str], error: CallFailedError) -> None:
        self.answered(record, str(error).rpartition("ValueError: ")[2])


def processor_calls(builder: StreamsBuilder, source: str, sink: str, processor: type[Paying] = Paying) -> None:
    """Write each line with the receipt of its call, by a processor."""
    text = Serdes.string()
    builder.add_state_store(Stores.key_value_store_builder(Stores.persistent_key_value_store("receipts"), text, text))
    options = Calls(capacity=CAPACITY)
    receipts = builder.stream(source).process(
        processor, "receipts", named="pay", calls=options, call_functions=(processor.function,)
    )
    receipts.to(sink, Produced.with_(text, text))


def parked(builder: StreamsBuilder, source: str, sink: str) -> None:
    """Write each line in the order of its key, though some fail at first in each process."""
    attempts: Counter[str] = Counter()

    def accepted(line: str) -> str:
        attempts[line] += 1
        if attempts[line] <= int(line[1:]) % 3:
            raise ConnectionError("The service is busy.")
        return line

    waits = Park(backoff=Backoff(20), attempts=30)
    lines = builder.stream(source).map_values(accepted, named="pay", on_error=waits)
    lines.to(sink, Produced.with_(Serdes.string(), Serdes.string()))


PROGRAMS = {
    "batches": paying(paid_together, Calls(capacity=CAPACITY, batch_size=BATCH_SIZE)),
    "calls": paying(paid, Calls(capacity=CAPACITY)),
    "model": paying(payer, Calls(capacity=CAPACITY, threads=CAPACITY)),
    "parked": parked,
    "processor calls": processor_calls,
    "reconciled batches": paying(paid_together, Calls(capacity=CAPACITY, batch_size=BATCH_SIZE, reconcile=receipt_of)),
    "retried": paying(paid_in_the_end, Calls(capacity=CAPACITY, retry=Retry(attempts=3, backoff=Backoff(20)))),
    "counts": counts,
    "everywhere": everywhere,
    "expiring": expiring,
    "failing calls": partial(processor_calls, processor=HalfPaying),
    "largest": largest,
    "reconciled": paying(paid, Calls(capacity=CAPACITY, reconcile=receipt_of)),
}
_LONGS = Produced.with_(Serdes.string(), Serdes.long())


def main(servers: str, application: str, state: str, source: str, sink: str, settings: str, program: str) -> int:
    """Run the instance; returns 1 if it ends by an error."""
    builder = StreamsBuilder()
    PROGRAMS[program](builder, source, sink)
    config = StreamsConfig(
        {
            "application.id": application,
            "bootstrap.servers": servers,
            "state.dir": state,
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": 50,
            "statestore.cache.max.bytes": 0,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            **json.loads(settings),
        }
    )
    built = built_topology(builder.build(), application)
    listening = Listening()
    host = ThreadsHost(built, config)
    host.start(listening)
    print("started", flush=True)
    sys.stdin.read()
    host.close(60_000)
    if listening.error is not None:
        raise listening.error
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
