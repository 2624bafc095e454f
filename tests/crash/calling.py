"""A program whose topology calls a function for each record, and answers each error by a restart.

Run as `calling.py <configuration as JSON>`; beside keys of StreamsConfig that has the topics, `source` and `target`,
and `kind`, one of KINDS. The environment variable MADE names a file with a line for each call: the value, and a text
that no other call has.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock import (
    NOT_CALLED,
    Backoff,
    CallContext,
    Calls,
    Consumed,
    KafkaStreams,
    KStream,
    NotCalled,
    Park,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Retry,
    Serdes,
    Stores,
    StreamsBuilder,
    Topology,
    model,
    vectorized,
)
from penstock.host.api import State
from tests.crash.replaced import replace

STRING = Serdes.string()
NODE = "ask"
MADE = "PENSTOCK_CRASH_MADE"
CAPACITY, BATCH_SIZE = 10, 3
_STORE = "answers"


def noted(*values: str) -> list[str]:
    """Note calls, and return an answer for each that no other call gets."""
    answers = [f"{value} {uuid.uuid4().hex}" for value in values]
    with Path(os.environ[MADE]).open("a") as file:
        file.write("".join(f"{answer}\n" for answer in answers))
        file.flush()
        os.fsync(file.fileno())
    return answers


async def ask(value: str) -> str:
    """Note the call, wait as for a service, and return its answer."""
    (answer,) = noted(value)
    await asyncio.sleep(0.02)
    return answer


async def ask_in_the_end(value: str, *, call: CallContext) -> str:
    """As `ask`, but the service refuses the first attempts of some records."""
    if call.attempt <= int(value) % 3:
        raise ConnectionError("The service is busy.")
    return await ask(value)


@vectorized
async def ask_together(values: list[str]) -> list[str]:
    """As `ask`, for several records."""
    answers = noted(*values)
    await asyncio.sleep(0.02)
    return answers


@model(batch_size=BATCH_SIZE)
def asking_model() -> Callable[[list[str]], list[str]]:
    """Return a model that does the same, and blocks meanwhile."""
    return lambda values: noted(*values)


async def known(value: str) -> str | NotCalled:
    """Return the answer of a call that was made."""
    made = Path(os.environ[MADE])
    lines = made.read_text().splitlines() if made.exists() else []
    return next((line for line in lines if line.startswith(f"{value} ")), NOT_CALLED)


class Asking(Processor[str, str, str, str]):
    """Asks for each record, and marks an answer that it gets again."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store of answers."""
        super().init(context)
        self._answers = context.get_state_store(_STORE)

    def process(self, record: Record[str, str]) -> None:
        """Ask for the record."""
        self.context.call(ask, record.value)

    def answered(self, record: Record[str, str], answer: str) -> None:
        """Forward the answer."""
        before = self._answers.get(record.value)
        self._answers.put(record.value, answer)
        self.context.forward(record.with_value(answer if before is None else f"{answer} again"))


def _mapping(function: Callable[..., Any], **changed: Any) -> Callable[[KStream], KStream]:
    """Return an operator that calls a function for each value."""
    calls = Calls(capacity=CAPACITY, **changed)
    return lambda records: records.map_values(function, named=NODE, calls=calls)


def _processing(records: KStream) -> KStream:
    """Let a processor make the calls."""
    return records.process(Asking, _STORE, named=NODE, calls=Calls(capacity=CAPACITY), call_functions=(ask,))


def refused_or_asked(value: str) -> str:
    """As `ask`, in the task, but the service refuses a third of the calls, whatever it answered before."""
    (answer,) = noted(value)
    if int(answer.partition(" ")[2], 16) % 3 == 0:
        raise ConnectionError("The service is busy.")
    return answer


def _parking(target: str, records: KStream) -> KStream:
    """Ask in the task, and park records that are refused; in the end they are dead letters in the target."""
    waits = Park(backoff=Backoff(20), attempts=3, then=target)
    return records.map_values(refused_or_asked, named=NODE, on_error=waits)


PARKED = "parked"
CALLING: dict[str, Callable[[KStream], KStream]] = {
    "repeated": _mapping(ask),
    "reconciled": _mapping(ask, reconcile=known),
    "batches": _mapping(ask_together, batch_size=BATCH_SIZE),
    "reconciled batches": _mapping(ask_together, batch_size=BATCH_SIZE, reconcile=known),
    "model": _mapping(asking_model, threads=CAPACITY),
    "processor": _processing,
    "retried": _mapping(ask_in_the_end, retry=Retry(attempts=3, backoff=Backoff(20))),
}
"""Operators with calls that ask for each record."""
KINDS = (*CALLING, PARKED)


def asking(source: str, target: str, kind: str) -> Topology:
    """Return a topology that asks for each record."""
    builder = StreamsBuilder()
    operator = partial(_parking, target) if kind == PARKED else CALLING[kind]
    if operator is _processing:
        store = Stores.persistent_key_value_store(_STORE)
        builder.add_state_store(Stores.key_value_store_builder(store, STRING, STRING))
    records = builder.stream(source, Consumed.with_(key_serde=STRING, value_serde=STRING))
    operator(records).to(target, Produced.with_(key_serde=STRING, value_serde=STRING))
    return builder.build()


def main() -> int:
    """Run until the host has ended; return the exit code."""
    config = json.loads(sys.argv[1])
    given = [config.pop(name) for name in ("source", "target", "kind")]
    streams = KafkaStreams(asking(*given), config)
    ended = threading.Event()
    streams.set_uncaught_exception_handler(replace)
    streams.set_state_listener(lambda new, old: ended.set() if new in (State.ERROR, State.NOT_RUNNING) else None)
    streams.start()
    ended.wait()
    streams.close()
    return 1


if __name__ == "__main__":
    sys.exit(main())
