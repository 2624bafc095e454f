"""One instance of a small program on the threads host, as a process of its own: runs until its standard input ends.

python -m tests.host.threads.program SERVERS APPLICATION STATE_DIR SOURCE SINK SETTINGS PROGRAM

SETTINGS: further configuration, as JSON. PROGRAM: `counts` or `largest`.
"""

from __future__ import annotations

import json
import sys

from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Grouped, Produced
from penstock.host.threads.host import ThreadsHost
from penstock.plan.topology import built_topology
from penstock.serdes import Serdes
from tests.host.threads.support import Listening


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


PROGRAMS = {"counts": counts, "largest": largest}
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
