"""The waiting rows of one run through the columns, and their positions.

A position is the place of a row in a depth-first run. It is refined when a node fans out or multiplies a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import numpy as np

from penstock.metrics.drop_reasons import Dropped
from penstock.processor.row_partitions import RowPartitions
from penstock.record import Int64Array, RecordBatch, listed, take_from
from penstock.task.column_plan import Child, Entry

MAXIMUM_SCALE = 1 << 40


class InputBatch(NamedTuple):
    """A batch on its way in.

    Args:
        entries: the entry of each partition.
        partitions: the source partitions of the rows.
        stream_times: the stream time (ms) at each row; None if time does not advance, in a flush.
    """

    entries: Sequence[Entry]
    partitions: RowPartitions
    batch: RecordBatch
    stream_times: Int64Array | None

    def slice(self, start: int, stop: int) -> InputBatch:
        """Return the rows from `start` up to, but not including, `stop`."""
        times = None if self.stream_times is None else self.stream_times[start:stop]
        own = self.partitions.take(slice(start, stop))
        return InputBatch(self.entries, own, self.batch.slice(start, stop), times)

    def by_entry(self) -> Iterator[tuple[Entry, RecordBatch, Int64Array]]:
        """Yield each entry with its rows, and their numbers."""
        numbers = self.partitions.numbers
        if numbers is None:
            yield self.entries[0], self.batch, np.arange(len(self.batch), dtype=np.int64)
            return
        for entry in dict.fromkeys(self.entries):
            own = [number for number, each in enumerate(self.entries) if each is entry]
            rows = np.flatnonzero(np.isin(numbers, own))
            yield entry, self.batch.take(rows), rows

    def entry_of_each(self) -> Iterable[Entry]:
        """Return the entry of each row; without end if all have the same."""
        numbers = self.partitions.numbers
        return repeat(self.entries[0]) if numbers is None else take_from(self.entries, numbers)


class Part(NamedTuple):
    """Rows on one edge from `parent`; positions is None if the plan needs no positions."""

    parent: Entry
    batch: RecordBatch
    positions: Int64Array | None


@dataclass
class Flow:
    """The waiting rows of one run, by the node that they lead to.

    Args:
        scale: how far positions have been refined.
        failed_at: the position of the first failed row, if any.
        dropped: for each node that dropped records, the position of its first row, and the number by name.
    """

    waiting: dict[str, list[Part]] = field(default_factory=dict)
    dropped: list[tuple[int, Counter[Dropped]]] = field(default_factory=list)
    scale: int = 1
    failed_at: int | None = None

    def partitions_of(self, part: Part, entering: InputBatch) -> RowPartitions:
        """Return the source partitions of rows that come from those of `entering`."""
        if entering.partitions.numbers is None:
            return entering.partitions
        return entering.partitions.take(known(part.positions) // self.scale)

    def refine(self, factor: int) -> bool:
        """Replace each position by `factor` positions; return whether they still fit."""
        self.scale *= factor
        if self.failed_at is not None:
            self.failed_at *= factor
        self.dropped[:] = [(position * factor, dropped) for position, dropped in self.dropped]
        for parts in self.waiting.values():
            parts[:] = [
                Part(parent, batch, None if positions is None else positions * factor)
                for parent, batch, positions in parts
            ]
        return self.scale <= MAXIMUM_SCALE

    def cut(self, failed_at: int) -> None:
        """Discard all rows that a depth-first run would not reach before the failure.

        failed_at: its position.
        """
        self.failed_at = failed_at
        for parts in self.waiting.values():
            parts[:] = [
                Part(parent, batch.take(before), known(positions)[before])
                for parent, batch, positions in parts
                for before in [np.flatnonzero(known(positions) < failed_at)]
            ]

    def hold(self, node: str, part: Part) -> None:
        """Let rows wait for the node `node`."""
        self.waiting.setdefault(node, []).append(part)

    def refined(self, positions: Int64Array, origin: Int64Array) -> Int64Array:
        """Return the positions of rows created from the rows `origin`.

        Those of one origin are consecutive.
        """
        repeated = origin[1:] == origin[:-1]
        if not repeated.any():
            taken: Int64Array = positions[origin]
            return taken
        rows = np.arange(len(origin), dtype=np.int64)
        first = rows.copy()
        first[1:][repeated] = 0
        place = rows - np.maximum.accumulate(first)
        factor = int(place.max()) + 1
        _check_room(self.refine(factor))
        refined: Int64Array = positions[origin] * factor + place
        return refined

    def deliver(self, children: Sequence[Child], part: Part) -> None:
        """Pass rows to all children, each row to the first child first."""
        positions = part.positions
        if positions is not None and len(children) > 1:
            _check_room(self.refine(len(children)))
            positions = positions * len(children)
        for place, child in enumerate(children):
            own = positions if positions is None or place == 0 else positions + place
            self.hold(child.name, Part(part.parent, part.batch, own))

    def branch(self, branches: Mapping[str, Int64Array], part: Part) -> None:
        """Pass each child its own rows: a row with only one path keeps its position."""
        for child, rows in branches.items():
            positions = None if part.positions is None else part.positions[rows]
            self.hold(child, Part(part.parent, part.batch.take(rows), positions))

    def refined_both(
        self, positions: Int64Array, first: Int64Array, second: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the positions of rows created from the rows `first`, and from `second`.

        The rows of one origin are consecutive, those of `first` before those of `second`.
        """
        origin = np.concatenate([first, second])
        order = np.argsort(origin, kind="stable")
        places = np.empty(len(origin), np.int64)
        places[order] = self.refined(positions, origin[order])
        return places[: len(first)], places[len(first) :]


def merged(parts: list[Part]) -> Part:
    """Return the rows of all parts in the order of their positions."""
    filled = [part for part in parts if len(part.batch)]
    if len(filled) <= 1:
        return (filled or parts)[0]
    positions = np.concatenate([known(part.positions) for part in filled])
    order = np.argsort(positions, kind="stable")
    return Part(filled[0].parent, RecordBatch.concat([part.batch for part in filled]).take(order), positions[order])


def merged_sides(sides: Sequence[Sequence[Part]]) -> tuple[Part, Int64Array]:
    """Return the rows of all sides in the order of their positions, and the index of each row's side."""
    filled = [(number, part) for number, parts in enumerate(sides) for part in parts if len(part.batch)]
    numbers = np.repeat([number for number, _ in filled], [len(part.batch) for _, part in filled])
    positions = np.concatenate([known(part.positions) for _, part in filled])
    order = np.argsort(positions, kind="stable")
    batch = RecordBatch.concat([listed(part.batch) for _, part in filled])
    if len(filled) > 1:
        batch, positions, numbers = batch.take(order), positions[order], numbers[order]
    return Part(filled[0][1].parent, batch, positions), numbers


def known(positions: Int64Array | None) -> Int64Array:
    """Return positions that the plan has."""
    if positions is None:
        raise AssertionError("A plan with a merge needs positions.")
    return positions


def _check_room(fits: bool) -> None:
    if not fits:
        raise OverflowError(
            "The operators multiply records more often than positions can tell apart; set penstock.execution=record."
        )
