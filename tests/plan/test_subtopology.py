"""A built topology as plain data."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import StreamsBuilder
from penstock.lake.tables import Delta, LakeSink
from penstock.plan.subtopology import (
    BuiltTopology,
    DataFrameSink,
    DataFrameSource,
    InternalTopic,
    SinkSpec,
    SourceSpec,
    SubtopologySpec,
    TaskId,
)


@given(st.integers(0), st.integers(0))
def test_a_task_id_is_read_as_it_is_written(subtopology: int, partition: int) -> None:
    task_id = TaskId(subtopology, partition)
    assert str(task_id) == f"{subtopology}_{partition}"
    assert TaskId.parse(str(task_id)) == task_id


@pytest.mark.parametrize("text", ["", "1", "1_", "_1", "1_2_3", "a_b", " 1_2", "1_+2", "1_02"])
def test_a_text_that_is_no_task_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|Not a task id: "):
        TaskId.parse(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (None, None),
        (re.compile("in-.*"), "in-.*"),
        (re.compile("in-.*", re.IGNORECASE), "(?i)in-.*"),
        (re.compile("(?i)in-.*", re.IGNORECASE | re.DOTALL), "(?s)(?i)in-.*"),
        (re.compile("in - .*", re.VERBOSE | re.ASCII), "(?ax)in - .*"),
    ],
)
def test_the_text_of_a_pattern_has_its_flags(pattern: re.Pattern[str] | None, text: str | None) -> None:
    assert SourceSpec("source", (), pattern).pattern_text == text
    assert pattern is None or re.compile(str(text)).flags == pattern.flags


def test_a_changelog_that_is_a_source_is_not_written() -> None:
    changelogs = {"own": ("app-own-changelog", {}), "filled": ("in", {})}
    spec = SubtopologySpec(0, (), source_topics=("in",), changelogs=changelogs)
    assert spec.written_changelogs == {"own": "app-own-changelog"}


def test_sinks_that_choose_their_topic_may_write_to_any() -> None:
    sinks = SinkSpec("a", (), "x"), SinkSpec("b", (), "y"), SinkSpec("c", (), None)
    spec = SubtopologySpec(0, sinks)
    assert spec.sinks_of("x") == "a, c"
    assert spec.sinks_of("y", str.upper) == "B, C"
    assert spec.sinks_of("z") == "c"


def test_data_frames_stay_in_the_program_and_their_topics_do_not() -> None:
    sources, sinks = {"in": DataFrameSource(object())}, {"out": DataFrameSink(lambda frame, number: None)}
    built = BuiltTopology((), data_frame_topics=("in", "out"), data_frame_sources=sources, data_frame_sinks=sinks)
    bare = built.without_data_frames()
    assert (bare.data_frame_sources, bare.data_frame_sinks, bare.data_frame_topics) == ({}, {}, ("in", "out"))


def test_tables_of_a_lake_stay_in_the_program_and_their_topics_do_not() -> None:
    sinks = {"app-orders-lake": LakeSink(Delta("/lake", {"key": "secret"}), None, None)}
    built = BuiltTopology((), lake_topics=("app-orders-lake",), lake_sinks=sinks)
    bare = built.without_data_frames()
    assert (bare.lake_sinks, bare.lake_topics) == ({}, ("app-orders-lake",))


def test_lines_of_the_program_do_not_make_it_another_one() -> None:
    built = [StreamsBuilder() for _ in range(2)]
    built[0].stream("in")
    built[1].stream("in")
    first, second = (builder.build().build("app") for builder in built)
    assert first == second
    assert first.node_lines != second.node_lines
    assert first.without_lines().node_lines == {}


def test_a_topology_of_earlier_versions_keeps_its_answers_topics() -> None:
    topics = {"app-ask-answers": InternalTopic("app-ask-answers", {})}
    state = vars(BuiltTopology((), task_topics=topics)).copy()
    state["answers_topics"] = state.pop("task_topics")
    built = BuiltTopology.__new__(BuiltTopology)
    built.__setstate__(state)
    assert vars(built) == vars(BuiltTopology((), task_topics=topics))
    del state["answers_topics"]
    older = BuiltTopology.__new__(BuiltTopology)
    older.__setstate__(state)
    assert older.task_topics == {}
