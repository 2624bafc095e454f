"""The program that chaos strikes: joins, windows, a join by foreign key, a repartition, calls and punctuations by wall
clock, from topics to topics.

Run as `program.py <configuration as JSON>`; beside keys of StreamsConfig that has `prefix` (of the topics), `version`
and `letters` (of the topology), `orders` (a directory) and `to_end`. It runs to the end of its input, or until a file
`stop` appears in that directory; it pauses while there is a file `pause`, and makes a file `paused` then. The calls are
noted in the file that CALLS_FILE of the environment names.
"""

from __future__ import annotations

import asyncio
import json
import os
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
)
from penstock.host.api import State

INPUTS = ("clicks", "views", "accounts", "orders", "users")
GROWING, JOINED, TABLES = ("minutes", "letters"), ("pairs", "enriched"), ("owners",)
TICKS, ASKED = "ticks", "asked"
OUTPUTS = (*GROWING, *JOINED, *TABLES, "more", TICKS, ASKED)
CALLS_FILE = "PENSTOCK_CHAOS_CALLS"
CAPACITY = 5
CALLS = Calls(capacity=CAPACITY, retry=Retry(attempts=2, backoff=Backoff(50), on=ConnectionError))
KEEP_ANSWERS = {"repartition.purge.interval.ms": 2**62}
"""The setting with which all answers stay in their topic, also while the clock is years ahead."""
LETTERS_STORE, ORDERS_STORE, MORE_STORE = "letters-store", "orders-store", "more-store"
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
    """Note the call, and return the value with a text that no other call returns; one attempt of eleven fails first."""
    if call.attempt == 1 and call.offset % 11 == 0:
        raise ConnectionError("The service is busy.")
    answer = f"{value} {uuid.uuid4().hex}"
    if CALLS_FILE in os.environ:
        with Path(os.environ[CALLS_FILE]).open("a") as file:
            file.write(f"{answer}\n")
    await asyncio.sleep(0.01)
    return answer


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

    clicks.map_values(ask, named=ASKED, calls=CALLS).to(f"{prefix}-{ASKED}", produced)

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
