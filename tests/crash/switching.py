"""A word count on Spark and its successor, which counts the same, and the switch from one to the other.

Run as `switching.py <configuration as JSON>`; beside keys of StreamsConfig that has `role`, `source` and `target`. The
role is `old` or `new`, which run until they are asked to end; `old to end`, `new to end`, or `switch`.
"""

from __future__ import annotations

import json
import sys

from penstock import Consumed, Grouped, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.shadow import switch

TEXT = Serdes.string()


def counting(source: str, target: str, is_changed: bool) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed.with_(TEXT, TEXT))
    if is_changed:
        stream = stream.filter(lambda key, value: True)
    counts = stream.group_by_key(Grouped.with_(TEXT, TEXT)).count(Materialized.as_("counts"))
    counts.to_stream().map_values(str).to(target, Produced.with_(TEXT, TEXT))
    return builder.build()


def main() -> None:
    config = json.loads(sys.argv[1])
    role, topics = config.pop("role"), (config.pop("source"), config.pop("target"))
    programs = {name: counting(*topics, name == "new") for name in ("old", "new")}
    if role == "switch":
        assert switch((programs["old"], config), (programs["new"], config)).is_switched
        return
    name, _, to_end = role.partition(" ")
    streams = KafkaStreams(programs[name], config)
    if to_end:
        streams.run_to_end()
        return
    streams.start()
    print("started", flush=True)
    streams.await_termination()


if __name__ == "__main__":
    main()
