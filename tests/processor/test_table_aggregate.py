"""How updates of a grouped table travel and are added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder
from penstock.errors import StreamsError
from penstock.processor.table_aggregate import TableGroupBy
from penstock.record import Change, Record
from tests.support.tables import UNCACHED, updates


class Context:
    """Notes what is forwarded."""

    def __init__(self, upgrade_from: str | None = None) -> None:
        self._upgrade_from = upgrade_from
        self.forwarded: list[tuple[Any, Change]] = []

    def config(self, key: str) -> str | None:
        return {"upgrade.from": self._upgrade_from}[key]

    def forward(self, record: Record[Any, Change]) -> None:
        self.forwarded.append((record.key, record.value))


def grouped(
    change: Change,
    mapper: Callable[[Any, Any], Any] = lambda key, value: (value[0], value),
    upgrade_from: str | None = None,
    versioned: bool = False,
) -> list[tuple[Any, Change]]:
    context = Context(upgrade_from)
    processor = TableGroupBy(mapper, versioned)
    processor.init(context)  # type: ignore[arg-type]  # all that the processor asks for
    processor.process(Record("key", change, 1))
    return context.forwarded


def test_values_of_one_group_travel_together() -> None:
    assert grouped(Change("x2", "x1")) == [("x", Change("x2", "x1"))]


@pytest.mark.parametrize(("upgrade_from", "records"), [("0.10.0", 2), ("2.8", 2), ("3.4", 2), ("3.5", 1), ("4.0", 1)])
def test_versions_before_3_5_read_one_value_a_record(upgrade_from: str, records: int) -> None:
    assert len(grouped(Change("x2", "x1"), upgrade_from=upgrade_from)) == records


def test_the_old_value_goes_first_to_another_group() -> None:
    assert grouped(Change("y", "x")) == [("x", Change(None, "x")), ("y", Change("y", None))]


@pytest.mark.parametrize("pair", [None, (None, "v"), ("k", None)])
def test_what_the_mapper_leaves_out_does_not_travel(pair: Any) -> None:
    assert grouped(Change("new", None), lambda key, value: pair) == []


def test_late_versions_do_not_travel() -> None:
    late = Change("x", None, is_latest=False)
    assert grouped(late, versioned=True) == []
    assert grouped(late) == [("x", late)]


def test_a_key_is_needed() -> None:
    processor = TableGroupBy(lambda key, value: (key, value), False)
    processor.init(Context())  # type: ignore[arg-type]  # all that the processor asks for
    with pytest.raises(StreamsError, match="should not be null"):
        processor.process(Record(None, Change("x", None), 1))


def test_entries_move_between_groups() -> None:
    builder = StreamsBuilder()
    builder.table("in").group_by(lambda key, value: (value, value)).count().to_stream().to("out")
    rows: list[Any] = [("a", "x", 3), ("b", "x", 1), ("a", "y", 2), ("b", None, 9), ("b", None, 10)]
    assert updates(builder, rows, UNCACHED, Serdes.long()) == [
        ("x", 1, 3),
        ("x", 2, 3),
        ("x", 1, 3),
        ("y", 1, 2),
        ("x", 0, 9),
    ]


def test_an_aggregate_starts_over_after_its_subtractor_deleted_it() -> None:
    builder = StreamsBuilder()
    table = builder.table("in").group_by(lambda key, value: ("all", value))
    table.aggregate(
        lambda: "start", lambda key, value, total: f"{total}+{value}", lambda key, value, total: None
    ).to_stream().to("out")
    rows: list[Any] = [("a", "x", 1), ("a", "y", 2), ("b", "z", 3)]
    assert updates(builder, rows) == [("all", "start+x", 1), ("all", "start+y", 2), ("all", "start+y+z", 3)]
