"""A program whose topology calls a function for each record, and answers each error by a restart.

Run as `calling.py <configuration as JSON>`; beside keys of StreamsConfig that has the topics, `source` and `target`,
`made`, a file with a line for each call: the value, and a text that no other call has, and `reconciles`, whether it is
asked before a call is repeated.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import uuid
from functools import partial
from pathlib import Path

from penstock import NOT_CALLED, Calls, Consumed, KafkaStreams, NotCalled, Produced, Serdes, StreamsBuilder, Topology
from penstock.host.api import State
from tests.crash.replaced import replace

STRING = Serdes.string()
NODE = "ask"


async def ask(made: str, value: str) -> str:
    """Note the call, wait as for a service, and return an answer that no other call gets."""
    answer = f"{value} {uuid.uuid4().hex}"
    with Path(made).open("a") as file:
        file.write(f"{answer}\n")
        file.flush()
        os.fsync(file.fileno())
    await asyncio.sleep(0.02)
    return answer


async def known(made: str, value: str) -> str | NotCalled:
    """Return the answer of a call that was made."""
    lines = Path(made).read_text().splitlines() if Path(made).exists() else []
    return next((line for line in lines if line.startswith(f"{value} ")), NOT_CALLED)


def asking(source: str, target: str, made: str, reconciles: bool) -> Topology:
    """Return a topology with one call for each record; `reconciles` asks for answers before calls are repeated."""
    builder = StreamsBuilder()
    records = builder.stream(source, Consumed.with_(key_serde=STRING, value_serde=STRING))
    calls = Calls(capacity=10, reconcile=partial(known, made) if reconciles else None)
    asked = records.map_values(partial(ask, made), named=NODE, calls=calls)
    asked.to(target, Produced.with_(key_serde=STRING, value_serde=STRING))
    return builder.build()


def main() -> int:
    """Run until the host has ended; return the exit code."""
    config = json.loads(sys.argv[1])
    given = [config.pop(name) for name in ("source", "target", "made", "reconciles")]
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
