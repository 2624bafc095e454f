"""A service that operators with calls ask, in the process of the test, and topologies that ask it.

Threads, worker processes, the test driver, and Spark whose part is played in this process make all calls here.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock import CallContext, Calls, Consumed, KStream, Produced, Serdes, StreamsBuilder, Topology
from tests.host.support import InputRecord, OutputRecord, Runner

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
TEXTS = Produced.with_(key_serde=STRING, value_serde=STRING)
CALLS = Calls(capacity=10)


@dataclass
class Service:
    """Counts calls, and answers while it is up.

    declined: values whose calls fail. seen, clients: for tests that note contexts and clients. ended: ends blocking
    functions.
    """

    calls: Counter[str] = field(default_factory=Counter)
    declined: set[str] = field(default_factory=set)
    seen: list[CallContext] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    is_up: bool = True
    ended: threading.Event = field(default_factory=threading.Event)

    def reset(self) -> None:
        """Forget everything."""
        self.__dict__.update(Service().__dict__)

    def release(self) -> None:
        """Let all calls end."""
        self.is_up = True
        self.ended.set()


SERVICE = Service()


async def ask(value: str) -> str:
    """Return an answer that no other call of the value has."""
    SERVICE.calls[value] += 1
    number = SERVICE.calls[value]
    while not SERVICE.is_up:
        await asyncio.sleep(0.005)
    if value in SERVICE.declined:
        raise ConnectionError("The service is down.")
    return f"{value} {number}"


def calling(source: str, target: str, operator: Callable[[KStream], KStream]) -> Topology:
    """Return a topology with one operator between two topics."""
    builder = StreamsBuilder()
    operator(builder.stream(source, TEXT)).to(target, TEXTS)
    return builder.build()


def asking(
    source: str, target: str, function: Callable[..., object] = ask, calls: Calls = CALLS, name: str = "ask"
) -> Topology:
    """Return a topology that asks for each value."""
    return calling(source, target, lambda stream: stream.map_values(function, named=name, calls=calls))


def rows(*written: str, partition: int = 0) -> list[InputRecord]:
    """Return a record for each text, whose first letter is its key."""
    return [
        InputRecord(text[0].encode(), text.encode(), 1_000 + number, partition, (("n", str(number).encode()),))
        for number, text in enumerate(written)
    ]


def texts(records: list[OutputRecord]) -> list[str]:
    """Return the values of records."""
    return [(each.value or b"").decode() for each in records]


def values(runner: Runner, topic: str) -> list[str]:
    """Return the values in a topic."""
    return texts(runner.read(topic))
