"""One instance of a count of words on the threads host, as a process of its own: runs until its standard input ends.

python -m tests.host.threads.program SERVERS APPLICATION STATE_DIR SOURCE SINK SETTINGS

SETTINGS: further configuration, as JSON.
"""

from __future__ import annotations

import json
import sys

from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Produced
from penstock.host.threads.driver import ThreadsHost
from penstock.plan.topology import built_topology
from penstock.serdes import Serdes
from tests.host.threads.support import Listening


def main(servers: str, application: str, state: str, source: str, sink: str, settings: str) -> int:
    """Run the instance; returns 1 if it ends by an error."""
    builder = StreamsBuilder()
    words = builder.stream(source).flat_map_values(str.split)
    counts = words.group_by(lambda _, word: word).count()
    counts.to_stream().to(sink, Produced.with_(Serdes.string(), Serdes.long()))
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
