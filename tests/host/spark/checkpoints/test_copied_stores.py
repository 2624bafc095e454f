"""Which stores each task has a copy of, and which of them are of both kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock import (
    Backoff,
    Calls,
    KStream,
    Materialized,
    Park,
    Processor,
    ProcessorSupplier,
    Record,
    Repartitioned,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsBuilder,
)
from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.copied_stores import copied_stores
from penstock.plan.subtopology import SubtopologySpec

TEXT = Serdes.string()


def store(name: str) -> StoreBuilder:
    return Stores.key_value_store_builder(Stores.in_memory_key_value_store(name), TEXT, TEXT)


class Passing(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class Keeping(ProcessorSupplier):
    """Processors that own the store `own`."""

    def get(self) -> Processor:
        return Passing()

    def stores(self) -> Sequence[StoreBuilder]:
        return [store("own")]


def streams(builder: StreamsBuilder) -> tuple[KStream, KStream]:
    return builder.stream("control").broadcast(Repartitioned.as_("b")), builder.stream("data")


def reading(builder: StreamsBuilder) -> SubtopologySpec:
    return builder.build().build("app").subtopologies[-1]


def test_a_table_of_a_broadcast_is_copied_whoever_looks_into_it_and_others_are_divided() -> None:
    builder = StreamsBuilder()
    control, data = streams(builder)
    rules = control.filter(lambda key, value: True).to_table(materialized=Materialized.as_("rules"))
    rules.filter(lambda key, value: True, materialized=Materialized.as_("some-rules"))
    people = builder.table("people", materialized=Materialized.as_("people"))
    control.join(people, max)
    data.process(Passing, "rules")
    data.group_by_key().count(Materialized.as_("counts"))
    data.process(Passing, "counts", "people")
    assert copied_stores(reading(builder)) == {"rules", "some-rules"}


def test_the_supplier_that_brings_a_store_decides() -> None:
    builder = StreamsBuilder()
    control, data = streams(builder)
    control.process(Keeping())
    data.process(Passing, "own")
    assert copied_stores(reading(builder)) == {"own"}


@pytest.mark.parametrize("merged", [True, False])
def test_a_store_that_both_may_fill_is_refused_with_its_processors(merged: bool) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(store("both"))
    control, data = streams(builder)
    for number, stream in enumerate([control.merge(data)] if merged else [control, data]):
        stream.process(Passing, "both", named=f"p{number}")
    with pytest.raises(
        StreamsError, match=rf"Store both is filled by {'p0' if merged else 'p0, p1'} with records of a"
    ):
        copied_stores(reading(builder))


def test_without_a_broadcast_nothing_is_copied() -> None:
    builder = StreamsBuilder()
    builder.stream("data").group_by_key().count()
    assert copied_stores(reading(builder)) == set()


async def ask(value: str) -> str:
    return value


def test_records_of_a_broadcast_that_wait_for_calls_are_copied_with_what_follows() -> None:
    builder = StreamsBuilder()
    control, data = streams(builder)
    calls = Calls(key_serde=TEXT, value_serde=TEXT)
    asked = control.map_values(ask, calls=calls, named="ask-rules")
    rules = asked.to_table(materialized=Materialized.as_("rules"))
    data.map_values(ask, calls=calls, named="ask-data").join(rules, max)
    assert copied_stores(reading(builder)) == {"ask-rules-calls", "rules"}


def test_parked_records_of_a_broadcast_are_copied_and_requests_about_them_do_not_matter() -> None:
    builder = StreamsBuilder()
    control, data = streams(builder)
    park = Park(backoff=Backoff(1_000), attempts=2, key_serde=TEXT, value_serde=TEXT)
    tried = control.map_values(str.upper, on_error=park, named="rules")
    data.map_values(str.upper, on_error=park, named="data").join(tried.to_table(), max)
    assert "rules-parked" in copied_stores(reading(builder))
    assert "data-parked" not in copied_stores(reading(builder))
