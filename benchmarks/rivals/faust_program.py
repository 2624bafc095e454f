"""Faust (faust-streaming): counts keys, or the words of lines. Runs in an environment of its own until its standard
input ends.

python faust_program.py '<json of a Job>'
"""

import json
import os
import sys
import threading
from typing import Any

import faust

JOB = json.loads(sys.argv[1])
app = faust.App(
    JOB["application"],
    broker=f"kafka://{JOB['bootstrap']}",
    store="memory://",
    datadir=JOB["directory"],
    topic_partitions=2,
    broker_commit_interval=JOB["commit_ms"] / 1000,
    consumer_auto_offset_reset="earliest",
    producer_linger_ms=1,
    web_enabled=False,
)
source = app.topic(JOB["source"], key_type=bytes, value_type=bytes)
sink = app.topic(JOB["sink"], key_type=bytes, value_type=bytes)
counts = app.Table("counts", default=int, partitions=2)

if JOB["program"] == "words":
    words = app.topic(f"{JOB['application']}-words", key_type=bytes, value_type=bytes, partitions=2, internal=True)

    @app.agent(source)  # type: ignore[untyped-decorator]  # Faust is in another environment
    async def split(lines: Any) -> None:
        """Send the words of each line to the topic that is counted."""
        async for line in lines:
            for word in line.lower().split():
                await words.send(key=word, value=b"")

else:
    words = source


@app.agent(words)  # type: ignore[untyped-decorator]  # Faust is in another environment
async def count(stream: Any) -> None:
    """Count the keys."""
    async for key, _ in stream.items():  # noqa: PERF102 - a stream, not a dict
        name = key.decode()
        counts[name] += 1
        await sink.send(key=key, value=b"%d" % counts[name])


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.argv = [sys.argv[0], "worker", "--loglevel=warn", "--without-web"]
    app.main()
