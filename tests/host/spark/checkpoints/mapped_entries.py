"""Rewrites a store of many entries, and prints the largest anonymous memory meanwhile (KiB).

python -m tests.host.spark.checkpoints.mapped_entries DIRECTORY ENTRIES
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from penstock import Materialized, Serdes, StreamsBuilder, StreamsConfig
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.mapping import StoreMapping, StoreMaps
from penstock.host.spark.checkpoints.task_segments import write_state
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.placement import place, shape
from penstock.host.storage.task_state import TaskState, already_open
from penstock.state.api import BaseView
from penstock.state.memory import MemoryBase

VALUE = b"v" * 1_000
STORE = "table"


class Many(MemoryBase):
    """Entries in the order of their numbers (implements Entries and BaseView)."""

    def __init__(self, entries: int) -> None:
        super().__init__()
        self._entries = entries

    def view(self, store_name: str) -> BaseView:
        return self  # type: ignore[return-value]  # the methods that a snapshot does not call are missing

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        for number in range(int(from_key or b"0"), self._entries):
            yield b"%012d" % number, bytes(8) + VALUE


def anonymous_memory() -> int:
    """Return the anonymous memory of this process (KiB): pages of files can be dropped."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def main(directory: str, entries: int) -> None:
    builder, text = StreamsBuilder(), Serdes.string()
    kept = Materialized.as_(STORE).with_key_serde(text).with_value_serde(text)
    builder.stream("in").to_table(materialized=kept)
    config = StreamsConfig({"application.id": "many"}, environment={})
    built = builder.build().build("many")
    placement = place(built, {"in": 2}, 1)
    description = ApplicationDescription(config, built, placement, {"in": 2}, {}, "", "", "", 0, False, "")
    source = Checkpoint(f"{directory}/source")
    state = TaskState(entries=already_open(Many(entries)), identity=b"many")
    entry = write_state(source, "0_0", built.subtopologies[0].store_kinds, state)
    largest = anonymous_memory()

    def rewritten(key: str, value: str) -> tuple[str, str]:
        nonlocal largest
        if key.endswith("00"):
            largest = max(largest, anonymous_memory())
        return f"{key}!", value + "!"

    manifest = Manifest("", 1, 0, 0, 0, {"0_0": entry})
    mapping = StoreMapping(
        source, manifest, shape(built, placement, config), description, StoreMaps({STORE: rewritten})
    )
    mapping.tasks(Checkpoint(f"{directory}/target"))
    assert mapping.results[0].changed == entries
    print(max(largest, anonymous_memory()))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
