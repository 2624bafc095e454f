"""The program that loses its power: a word count from a topic to a topic, until it is killed.

Run as `power_program.py <configuration as JSON>`; beside keys of StreamsConfig that has the topics, `source` and
`target`.
"""

from __future__ import annotations

import json
import signal
import sys

from penstock import KafkaStreams
from tests.crash.program import word_count


def main() -> None:
    config = json.loads(sys.argv[1])
    topology = word_count(config.pop("source"), config.pop("target"))
    with KafkaStreams(topology, config):
        signal.pause()


if __name__ == "__main__":
    main()
