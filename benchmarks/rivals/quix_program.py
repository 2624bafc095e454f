"""Quix Streams: counts keys, or the words of lines. Runs in an environment of its own until its standard input ends.

python quix_program.py '<json of a Job>'
"""

import json
import os
import sys
import threading
from typing import Any

from quixstreams import Application


def main() -> None:
    """Run the job of the first argument."""
    job = json.loads(sys.argv[1])
    app = Application(
        broker_address=job["bootstrap"],
        consumer_group=job["application"],
        state_dir=job["directory"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once" if job["guarantee"] == "exactly_once_v2" else "at-least-once",
        commit_interval=job["commit_ms"] / 1000,
        producer_extra_config={"linger.ms": 1},
        loglevel="WARNING",
    )
    source = app.topic(job["source"], key_deserializer="str", value_deserializer="str")
    sink = app.topic(job["sink"], key_serializer="str", value_serializer="int")
    frame = app.dataframe(source)
    if job["program"] == "words":
        frame = frame.apply(lambda line: line.lower().split(), expand=True)
        texts = dict.fromkeys(("key_serializer", "key_deserializer", "value_serializer", "value_deserializer"), "str")
        frame = frame.group_by(lambda word: word, name="word", **texts)

    def count(value: Any, state: Any) -> int:
        counted: int = state.get("count", 0) + 1
        state.set("count", counted)
        return counted

    frame = frame.apply(count, stateful=True)
    frame.to_topic(sink)
    threading.Thread(target=_end_with_input, daemon=True).start()
    app.run()


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
