"""What the programs of rivals that answer Nexmark share: their job, their reports, and their end.

A program runs in an environment of its own, without Penstock, until its standard input ends. Its last argument is the
JSON of a `Job`. It prints its progress as lines of JSON if its offsets in Kafka do not show it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Job:
    """What a program does.

    query: its name. source, side, sink: the topics of events, of the side input and of rows. application: a name that
    no other run has. directory: for state. guarantee: a processing guarantee of Kafka Streams. partitions: of each
    topic. events: how many there are, after which a program may end its windows; None if they go on. process: the
    number of this process of the program.
    """

    query: str
    bootstrap: str
    source: str
    side: str
    sink: str
    application: str
    directory: str
    guarantee: str
    partitions: int
    events: int | None
    process: int = 0

    @classmethod
    def of_arguments(cls) -> Self:
        """Return the job of the last argument; the process ends with its standard input from now on."""
        threading.Thread(target=_end_with_input, daemon=True).start()
        return cls(**json.loads(sys.argv[-1]))


def report(done: int) -> None:
    """Print how many events are answered."""
    print(json.dumps({"event": "progress", "process": os.getpid(), "done": done}), flush=True)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)
