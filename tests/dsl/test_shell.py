"""Streams, tables and groups that are used as Python collections, or by names of Java."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import GlobalKTable, KGroupedStream, KGroupedTable, KStream, KTable, StreamsBuilder
from tests.support.programs import shown_by


def test_a_name_of_java_has_one_suggestion(caplog: pytest.LogCaptureFixture) -> None:
    shown = shown_by('b.stream("in").mapValues(str.upper)', caplog)
    assert shown.endswith("AttributeError: KStream has no mapValues: write map_values.\n")


def shells() -> list[Any]:
    builder = StreamsBuilder()
    stream, table = builder.stream("in"), builder.table("t")
    grouped = stream.group_by_key()
    return [builder, stream, table, builder.global_table("g"), grouped, table.group_by(lambda k, v: (k, v))]


@pytest.mark.parametrize("shell", shells(), ids=lambda shell: type(shell).__name__)
def test_an_object_of_the_dsl_is_no_collection(shell: Any) -> None:
    kind = type(shell).__name__
    with pytest.raises(TypeError, match=f"^A {kind} cannot be iterated"):
        list(shell)
    with pytest.raises(TypeError, match=f"^A {kind} is neither true nor false"):
        bool(shell)
    with pytest.raises(TypeError, match=rf"^A {kind} has no items, such as 'x'"):
        shell["x"]


@pytest.mark.parametrize("shell", shells(), ids=lambda shell: type(shell).__name__)
def test_an_operator_of_another_class_is_named_with_one_that_exists(shell: Any) -> None:
    kinds = (KStream, KTable, GlobalKTable, KGroupedStream, KGroupedTable, StreamsBuilder)
    missing = {name for kind in kinds for name in dir(kind) if not name.startswith("_")} - set(dir(shell))
    assert missing
    for name in missing:
        with pytest.raises(AttributeError) as caught:
            getattr(shell, name)
        write = re.search(r": write (\w+)", str(caught.value))
        assert write is None or write[1] in dir(shell), str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flatMapValues", "KStream has no flatMapValues: write flat_map_values."),
        ("count", "KStream has no count: write group_by_key().count()."),
        ("transformValues", "KStream has no transformValues: write process_values(...)."),
        ("windowedBy", "KStream has no windowedBy: write group_by_key().windowed_by(...)."),
        ("mapp", "'KStream' object has no attribute 'mapp'"),
        ("_private", "'KStream' object has no attribute '_private'"),
    ],
)
def test_a_name_that_a_stream_does_not_have_is_an_attribute_error(name: str, text: str) -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(AttributeError) as caught:
        getattr(stream, name)
    assert str(caught.value) == text
    assert caught.value.name == name
    assert not hasattr(stream, name)
