"""The benchmarks run and print what they promise; speed is not checked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import word_count
from benchmarks.measuring import StalledError, watch

FIELDS = {"contestant", "text", "lines", "seconds", "words_per_second", "cpu_seconds_per_million_words"}


def test_the_task_alone_counts_right_and_is_reported_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert word_count.main(["--only", "a", "--lines", "400", "--words-per-line", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"measurements", "ratios", "latency", "missing"}
    assert [each["text"] for each in report["measurements"]] == ["10,000 words", "all distinct"]
    for each in report["measurements"]:
        assert set(each) >= FIELDS
        assert each["contestant"] == "a"
        assert each["lines"] >= (400 if each["text"] == "10,000 words" else 40)
        assert each["words_per_second"] > 0


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


def test_a_window_opens_when_a_share_is_done_and_ends_with_the_last() -> None:
    steps = iter([0, 10, 40, 40, 90, 100])
    window = watch(lambda: next(steps), 100)
    assert (window.lines, window.steps) == (60, 2)
    assert window.seconds > 0


@pytest.mark.parametrize(
    ("steps", "seconds", "enough"),
    [(10, 20.0, None), (1, 4.0, "--lines 12000000 would do"), (40, 10.0, "--lines 2400000"), (5, 50.0, "2400000")],
)
def test_no_rate_is_taken_from_a_short_window(steps: int, seconds: float, enough: str | None) -> None:
    told = word_count.too_short({"steps": steps, "seconds": seconds}, 1_000_000)
    assert (told is None) == (enough is None)
    assert enough is None or enough in str(told)


def test_what_is_done_immediately_cannot_be_measured() -> None:
    with pytest.raises(StalledError, match="give more --lines"):
        watch(lambda: 100, 100)
