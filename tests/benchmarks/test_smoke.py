"""The benchmarks run and print what they promise; speed is not checked."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Any

import pytest

from benchmarks import word_count
from benchmarks.measuring import Window, watch
from benchmarks.task_alone import measure_task_alone

FIELDS = {"contestant", "text", "lines", "seconds", "words_per_second", "cpu_seconds_per_million_words"}


def test_the_task_alone_counts_right_and_a_short_window_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert word_count.main(["--only", "a", "--lines", "400", "--words-per-line", "3", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"measurements", "ratios", "latency", "missing"}
    assert report["measurements"] == []
    assert set(report["missing"]) == {"a, 10,000 words", "a, all distinct"}
    for reason in report["missing"].values():
        assert int(re.search(r"--lines (\d+) would do", reason)[1]) >= 100_000


def test_the_task_alone_is_measured_in_epochs() -> None:
    measurement = measure_task_alone("10,000 words", 400, 3).to_json()
    assert set(measurement) >= FIELDS
    assert measurement["contestant"] == "a"
    assert (measurement["lines"], measurement["steps"]) == (400, 10)
    assert measurement["words_per_second"] > 0


def test_an_unknown_letter_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert word_count.main(["--only", "a,z"]) == 2
    assert "not z" in capsys.readouterr().err


def measured(letter: str, words_per_second: float, cpu: float | None, broker: str = "Kafka") -> dict[str, Any]:
    return {
        "contestant": letter,
        "text": "10,000 words",
        "broker": broker,
        "words_per_second": words_per_second,
        "cpu_seconds_per_million_words": cpu,
    }


def test_ratios_compare_on_one_broker() -> None:
    run = [measured("b", 100.0, 1.0), measured("b", 50.0, 2.0, "embedded broker"), measured("c", 5.0, 30.0)]
    (ratio,) = word_count.ratios([*run, measured("a", 9.0, None)])
    assert (ratio["ratio"], ratio["words_per_second"], ratio["cpu"]) == ("b : c", 20.0, 30.0)


def watched(steps: list[int], seconds: float, warm_seconds: float = 0.0) -> Window:
    """Watch a contestant of 100 lines that takes so many seconds for each step."""
    done, times = iter(steps), (number * seconds for number in count(0))
    return watch(lambda: next(done), 100, warm_seconds=warm_seconds, clock=lambda: next(times))


def test_a_window_opens_when_a_share_is_done_and_ends_with_the_last() -> None:
    window = watched([0, 10, 40, 40, 90, 100], 1.0)
    assert (window.lines, window.steps, window.seconds) == (60, 2, 3.0)


def test_a_window_opens_when_a_virtual_machine_is_warm() -> None:
    window = watched([0, 10, 40, 60, 80, 100], 10.0, warm_seconds=20.0)
    assert (window.lines, window.seconds) == (40, 20.0)


def test_no_lines_are_needed_after_a_long_window() -> None:
    assert watched([0, *range(30, 101, 5)], 2.0).lines_needed is None


@pytest.mark.parametrize(
    ("steps", "seconds", "warm_seconds", "needed"),
    [
        ([0, *range(30, 101, 5)], 1.0, 0.0, 172),  # 5 lines a second for 20 s, and the share before the window
        ([0, 30, 100], 50.0, 0.0, 1200),  # ten steps of 70 lines
        ([0, *range(30, 101, 5)], 1.0, 20.0, 240),  # 5 lines a second for 40 s
        ([100], 1.0, 0.0, 68572),  # one step of unknown length
    ],
)
def test_a_short_window_tells_how_many_lines_would_do(
    steps: list[int], seconds: float, warm_seconds: float, needed: int
) -> None:
    window = watched(steps, seconds, warm_seconds)
    assert window.lines_needed == needed


def test_the_lines_that_would_do_are_those_of_the_run() -> None:
    short = {"steps": 3, "seconds": 4.0, "lines_needed": 120_000}
    told = word_count.too_short(short, 1_000_000, 0.1)
    assert told is not None
    assert told.startswith("the window has 3 epochs and 4.0 s")
    assert told.endswith("--lines 1200000 would do")
    assert word_count.too_short({**short, "lines_needed": None}, 1_000_000, 0.1) is None
