"""The arguments of stream_from_history."""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from penstock import Consumed, Serdes, StreamsBuilder
from penstock.errors import TopologyError
from penstock.plan.topic_history import topic_history
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


def test_paths_and_offsets_are_kept_as_they_were() -> None:
    at = {0: 3}
    history = topic_history([Path("/data/a"), "/data/b"], "t", at)
    at[0] = 4
    assert history.rows == ("/data/a", "/data/b")
    assert history.at == {0: 3}
    assert topic_history("/data", "t", 17).rows == ("/data",)
    frame = object()
    assert topic_history(frame, "t", 17).rows is frame


def test_a_datetime_is_the_moment_of_the_change_over() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    builder = StreamsBuilder()
    builder.stream_from_history("/data", "t", at=noon)
    assert builder.build().build("app").histories["t"].at == 1_767_265_200_000


@pytest.mark.parametrize(
    ("rows", "at", "error", "text"),
    [
        ([], 1, TopologyError, "The history of topic t has no files. Without a history, use stream('t')."),
        (["a", 3], 1, TypeError, "got 3 among the paths"),
        ("a", {}, TopologyError, "There are no offsets at which topic t follows its history"),
        ("a", {0: -1}, ValueError, "got the offset -1"),
        ("a", {-2: 1}, ValueError, "got the partition -2"),
        ("a", {0: 1.5}, TypeError, "got the offset 1.5"),
        ("a", {True: 1}, TypeError, "got the partition True"),
        ("a", 1.5, TypeError, "as a whole number of ms since the epoch, got 1.5: write int(1000 * seconds)"),
        ("a", None, TypeError, "got None"),
        ("a", date(2026, 1, 1), TypeError, "as a datetime with a time zone, or as a whole number of ms"),
        ("a", datetime(2026, 1, 1), ValueError, "topic t follows its history, as a datetime with a time zone, got"),
    ],
)
def test_unsuitable_arguments_are_refused(rows: Any, at: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        StreamsBuilder().stream_from_history(rows, "t", at)


def test_the_topic_is_one_name() -> None:
    several: Any = ["a", "b"]
    with pytest.raises(TypeError, match="A stream from a history reads one topic, by its name, got"):
        StreamsBuilder().stream_from_history("a", several, 1)


def test_a_topic_has_one_history() -> None:
    builder = StreamsBuilder()
    builder.stream_from_history("a", "t", 1)
    builder.stream("t")
    with pytest.raises(TopologyError, match="Topic t is read twice, and not with the same history"):
        builder.build()


def test_the_history_stays_in_the_program() -> None:
    builder = StreamsBuilder()
    builder.stream_from_history("a", "t", 1)
    built = builder.build().build("app")
    assert built.histories["t"].rows == ("a",)
    assert built.without_data_frames().histories == {}


def test_the_test_driver_gets_the_records_of_a_history_in_its_topic() -> None:
    builder = StreamsBuilder()
    builder.stream_from_history("/no/such/file", "t", 1_000, Consumed.with_(TEXT, TEXT)).to("out")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        topic = driver.create_input_topic("t", TEXT, TEXT)
        topic.pipe_input("k", "past", 10)
        topic.pipe_input("k", "present", 1_000)
        output = driver.create_output_topic("out", TEXT, TEXT)
        assert output.read_values_to_list() == ["past", "present"]
