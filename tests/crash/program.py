"""The program that is killed: a word count from a topic to a topic, to the end of its input.

Run as `program.py <configuration as JSON>`; beside keys of StreamsConfig that has the topics, `source` and `target`,
and the `version` of the program.
Its functions are defined here, or in a module beside its data, so they reach the workers as those of any user's program
do.
"""

from __future__ import annotations

import importlib
import json
import sys

from penstock import Consumed, Grouped, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder, Topology

STORE = "counts"

MODULE = "splitting"
"""Where later versions have a function: a separate module, edited for each."""


def word_count(source: str, target: str, version: int = 0) -> Topology:
    """Return the topology; each version has another shape, and with every second one the tasks of the store have other
    numbers."""
    text = Serdes.string()
    grouped = Grouped.with_(key_serde=text, value_serde=text)
    builder = StreamsBuilder()
    words = builder.stream(source, consumed=Consumed.with_(key_serde=text, value_serde=text))
    words = words.flat_map_values(importlib.import_module(MODULE).split if version else lambda line: line.split())
    for _ in range(version):
        words = words.filter(lambda _, word: True)
    if version % 2:
        words.group_by(lambda _, word: word[:1], grouped=grouped).count(materialized=Materialized.as_("letters"))
    (
        words.group_by(lambda _, word: word, grouped=grouped)
        .count(materialized=Materialized.as_(STORE))
        .to_stream()
        .to(target, produced=Produced.with_(key_serde=text, value_serde=Serdes.long()))
    )
    return builder.build()


def main() -> None:
    config = json.loads(sys.argv[1])
    topology = word_count(config.pop("source"), config.pop("target"), config.pop("version"))
    KafkaStreams(topology, config).run_to_end()


if __name__ == "__main__":
    main()
