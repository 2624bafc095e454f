"""The program that chaos strikes: joins, windows, a join by foreign key, a repartition, calls, parked records and
punctuations by wall clock, from topics to topics.

Run as `program.py <configuration as JSON>`; beside keys of StreamsConfig that has `prefix` (of the topics), `version`
and `letters` (of the topology), `orders` (a directory) and `to_end`. It runs to the end of its input, or until a file
`stop` appears in that directory; it pauses while there is a file `pause`, and makes a file `paused` then. The calls are
noted in the file that CALLS_FILE of the environment names; if FAILURES is set there, functions fail now and then.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
import uuid
from pathlib import Path

from penstock import (
    Backoff,
    CallContext,
    Calls,
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    KafkaStreams,
    Materialized,
    Park,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Repartitioned,
    Retry,
    Serdes,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Topology,
    WindowedSerdes,
    vectorized,
)
from penstock.host.api import State

INPUTS = ("clicks", "views", "accounts", "orders", "users")
GROWING, JOINED, TABLES = ("minutes", "letters"), ("pairs", "enriched"), ("owners",)
TICKS, TRIED = "ticks", "tried"
CALLING = {"asked": "clicks", "asked-together": "views", "asked-by-processor": "views"}
"""The input of each operator with calls. Its output topic has its name."""
OUTPUTS = (*GROWING, *JOINED, *TABLES, "more", TICKS, TRIED, *CALLING)
CALLS_FILE, FAILURES = "PENSTOCK_CHAOS_CALLS", "PENSTOCK_CHAOS_FAILURES"
_CAPACITY, _BATCH = 5, 4
MADE_AGAIN = 2 * (_CAPACITY + _CAPACITY * _BATCH + _CAPACITY)
"""How many calls may be made again, at most, when the process that makes the calls of all operators ends."""
CALLS = Calls(capacity=_CAPACITY, retry=Retry(attempts=2, backoff=Backoff(50), on=ConnectionError))
CALLS_TOGETHER = Calls(capacity=_CAPACITY, batch_size=_BATCH, batch_wait=20, order="partition")
PARK = Park(backoff=Backoff(50, limit=500), attempts=1_000)
KEEP_ANSWERS = {"repartition.purge.interval.ms": 2**62}
"""The setting with which all answers stay in their topic, also while the clock is years ahead."""
LETTERS_STORE, ORDERS_STORE, MORE_STORE = "letters-store", "orders-store", "more-store"
PARKED_STORE = f"{TRIED}-parked"
MINUTE_MS, NEAR_MS, GRACE_MS = 60_000, 1_000, 1_000_000_000
TICK_MS = 1_000
_TICKED_MS = 1_700_000_000_000
"""The timestamp of ticks: a broker refuses one that is far in the future, as the clock of the program may be."""
_LOOK_SECONDS = 0.05


class Ticking(Processor[str, str, str, str]):
    """Forwards its task and the wall-clock time (ms) every TICK_MS."""

    def init(self, context: ProcessorContext) -> None:
        """Schedule the ticks."""
        super().init(context)
        context.schedule(TICK_MS, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing: time alone makes ticks."""

    def _tick(self, now: int) -> None:
        self.context.forward(Record(self.context.task_id, str(now), _TICKED_MS))


async def ask(value: str, *, call: CallContext) -> str:
    """Note the call, and return the value with a text that no other call returns. Each eleventh record needs a second
    attempt, in a process with FAILURES."""
    if FAILURES in os.environ and call.attempt == 1 and call.offset % 11 == 0:
        raise ConnectionError("The service is busy.")
    return (await _answers([value]))[0]


@vectorized
async def ask_together(values: list[str]) -> list[str]:
    """Note a call for each value, and return answers like those of `ask`."""
    return await _answers(values)


async def _answers(values: list[str]) -> list[str]:
    answers = [f"{value} {uuid.uuid4().hex}" for value in values]
    if CALLS_FILE in os.environ:
        with Path(os.environ[CALLS_FILE]).open("a") as file:
            file.writelines(f"{answer}\n" for answer in answers)
        await asyncio.sleep(0.01)  # only under chaos: the test driver makes one call after the other
    return answers


class Asking(Processor[str, str, str, str]):
    """Calls `ask` for each record, and forwards the answer."""

    def process(self, record: Record[str, str]) -> None:
        """Call."""
        self.context.call(ask, record.value)

    def answered(self, record: Record[str, str], answer: str) -> None:
        """Forward the answer."""
        self.context.forward(record.with_value(answer))


def attempt(value: str) -> str:
    """Return the value. One attempt of six fails, in a process with FAILURES."""
    if FAILURES in os.environ and random.random() < 1 / 6:
        raise ConnectionError("The service is away.")
    return value


def topology(prefix: str, version: int, letters: int) -> Topology:
    """Return the topology; version 2 has an aggregation more than version 1. letters: the partitions of the repartition
    topic by letter."""
    text, number = Serdes.string(), Serdes.long()
    consumed = Consumed.with_(key_serde=text, value_serde=text)
    produced = Produced.with_(key_serde=text, value_serde=text)
    grouped = Grouped.with_(key_serde=text, value_serde=text)
    minutes = TimeWindows.of_size_and_grace(MINUTE_MS, GRACE_MS)
    builder = StreamsBuilder()
    clicks, views = builder.stream(f"{prefix}-clicks", consumed), builder.stream(f"{prefix}-views", consumed)
    accounts, users = builder.table(f"{prefix}-accounts", consumed), builder.table(f"{prefix}-users", consumed)
    orders = builder.table(f"{prefix}-orders", consumed, Materialized.as_(ORDERS_STORE))

    by_minute = clicks.group_by_key(grouped).windowed_by(minutes).count(Materialized.as_("minutes-store"))
    windowed = Produced.with_(key_serde=WindowedSerdes.time_windowed(text, MINUTE_MS), value_serde=number)
    by_minute.to_stream().to(f"{prefix}-minutes", windowed)

    lettered = Repartitioned.with_(key_serde=text, value_serde=text).with_name("letter")
    of_letter = clicks.select_key(lambda _, value: value[:1])
    of_letter = of_letter.repartition(lettered.with_number_of_partitions(letters))
    by_letter = of_letter.group_by_key(grouped).count(Materialized.as_(LETTERS_STORE))
    by_letter.to_stream().to(f"{prefix}-letters", Produced.with_(key_serde=text, value_serde=number))

    near = JoinWindows.of_time_difference_and_grace(NEAR_MS, GRACE_MS)
    sides = StreamJoined.with_(key_serde=text, value_serde=text, other_value_serde=text)
    clicks.join(views, lambda click, view: f"{click}+{view}", near, stream_joined=sides).to(f"{prefix}-pairs", produced)
    of_account = Joined.with_(key_serde=text, value_serde=text, other_value_serde=text)
    enriched = clicks.left_join(accounts, lambda click, account: f"{click} of {account}", joined=of_account)
    enriched.to(f"{prefix}-enriched", produced)

    one, together, by_processor = CALLING
    clicks.map_values(ask, named=one, calls=CALLS).to(f"{prefix}-{one}", produced)
    views.map_values(ask_together, named=together, calls=CALLS_TOGETHER).to(f"{prefix}-{together}", produced)
    asking = views.process(Asking, named=by_processor, calls=CALLS, call_functions=[ask])
    asking.to(f"{prefix}-{by_processor}", produced)

    clicks.map_values(attempt, named=TRIED, on_error=PARK).to(f"{prefix}-{TRIED}", produced)

    views.process(Ticking).to(f"{prefix}-{TICKS}", produced)

    owned = orders.join(users, lambda order, user: f"{order} of {user}", foreign_key_extractor=lambda order: order[:2])
    owned.to_stream().to(f"{prefix}-owners", produced)
    if version == 2:
        more = views.group_by_key(grouped).count(Materialized.as_(MORE_STORE))
        more.to_stream().to(f"{prefix}-more", Produced.with_(key_serde=text, value_serde=number))
    return builder.build()


def main() -> int:
    """Run until told to stop, or to the end; return the exit code."""
    config = json.loads(sys.argv[1])
    orders, to_end = Path(config.pop("orders")), config.pop("to_end")
    streams = KafkaStreams(topology(config.pop("prefix"), config.pop("version"), config.pop("letters")), config)
    if to_end:
        streams.run_to_end()
        return 0
    streams.start()
    while not (orders / "stop").exists():
        if streams.state() in (State.ERROR, State.NOT_RUNNING):
            return 1
        if (orders / "pause").exists() != streams.is_paused():
            (streams.resume if streams.is_paused() else streams.pause)()
            if streams.is_paused():
                (orders / "paused").touch()
        time.sleep(_LOOK_SECONDS)
    streams.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
