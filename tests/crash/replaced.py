"""A word count that answers each error by a restart. It runs until its host gives up, and ends with exit code 1 then.

Run as `replaced.py <configuration as JSON>`; beside keys of StreamsConfig that has the topics, `source` and `target`.
Each error that its handler gets stands as a line `handler: <class>: <message>` in what it prints.
"""

from __future__ import annotations

import json
import sys
import threading

from penstock import KafkaStreams
from penstock.host.api import State, StreamThreadExceptionResponse
from tests.crash.program import word_count


def replace(error: BaseException) -> StreamThreadExceptionResponse:
    """Print an error, and ask for a restart."""
    print(f"handler: {type(error).__name__}: {error}", flush=True)
    return StreamThreadExceptionResponse.REPLACE_THREAD


def main() -> int:
    """Run until the host has ended; return the exit code."""
    config = json.loads(sys.argv[1])
    streams = KafkaStreams(word_count(config.pop("source"), config.pop("target")), config)
    ended = threading.Event()
    streams.set_uncaught_exception_handler(replace)
    streams.set_state_listener(lambda new, old: ended.set() if new in (State.ERROR, State.NOT_RUNNING) else None)
    streams.start()
    ended.wait()
    streams.close()
    return 1


if __name__ == "__main__":
    sys.exit(main())
