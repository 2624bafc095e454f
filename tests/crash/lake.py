"""A program that writes two tables of a lake: each line, and the number of the lines of each key. It runs to the end of
its input.

Run as `lake.py <configuration as JSON>`; beside keys of StreamsConfig that has `source`, `format` and `directory`, with
a directory for each of the tables.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from penstock import Consumed, Grouped, KafkaStreams, Produced, Serdes, StreamsBuilder, Topology
from tests.lake.formats import FORMATS

LINES, COUNTS = "lines", "counts"
"""The names of the tables' directories, and of the sinks."""


def tables(source: str, format_name: str, directory: Path) -> Topology:
    text = Serdes.string()
    lines, counts = (FORMATS[format_name](directory / name).table() for name in (LINES, COUNTS))
    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed.with_(text, text))
    stream.to_lake(lines, Produced.as_(LINES), partitions=2)
    stream.group_by_key(Grouped.with_(text, text)).count().to_lake(counts, Produced.as_(COUNTS), partitions=2)
    return builder.build()


def main() -> None:
    config = json.loads(sys.argv[1])
    topology = tables(config.pop("source"), config.pop("format"), Path(config.pop("directory")))
    KafkaStreams(topology, config).run_to_end()


if __name__ == "__main__":
    main()
