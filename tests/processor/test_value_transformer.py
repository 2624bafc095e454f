"""The transformer of the values of a table."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import StreamsBuilder, ValueTransformerWithKey
from penstock.errors import StreamsError
from penstock.processor.value_transformer import ValueTransformerContext
from penstock.testing import TopologyTestDriver
from tests.support.tables import UNCACHED, updates


def test_transformers_are_closed_also_those_by_which_others_read_a_table() -> None:
    living: list[ValueTransformerWithKey] = []

    class Counted(ValueTransformerWithKey):
        def init(self, context: ValueTransformerContext) -> None:
            super().init(context)
            living.append(self)

        def transform(self, key: Any, value: Any) -> Any:
            return value

        def close(self) -> None:
            living.remove(self)

    builder = StreamsBuilder()
    table = builder.table("in").transform_values(Counted)
    other = builder.table("other")
    both = table.outer_join(other, lambda one, two: f"{one}{two}")
    both.join(other, lambda one, two: one, foreign_key_extractor=lambda value: value).to_stream().to("out")
    builder.stream("stream").join(table, lambda one, two: one).to("out")
    with TopologyTestDriver(builder.build(), {**UNCACHED, "application.id": "test"}):
        assert len(living) > 2
    assert living == []


def test_a_transformer_cannot_forward() -> None:
    class Forwards(ValueTransformerWithKey):
        def init(self, context: ValueTransformerContext) -> None:
            super().init(context)

        def transform(self, key: Any, value: Any) -> Any:
            self.context.forward("anything")

    builder = StreamsBuilder()
    builder.table("in").transform_values(Forwards).to_stream().to("out")
    with pytest.raises(StreamsError) as raised:
        updates(builder, [("a", "x", 10)])
    assert "forward() is not supported" in str(raised.value.__cause__)
