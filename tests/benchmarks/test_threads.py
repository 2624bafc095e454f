"""The benchmark of the threads host runs on an embedded broker; speed is not checked."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from benchmarks import threads
from benchmarks.contestants import Contestant, Job, Running, UnavailableError, running
from benchmarks.threads import Figure, Results, table_lines
from penstock_broker.process import BrokerProcess

JOB = Job("keys", "localhost:1", "in", "out", "app", "/nowhere")


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        threads.main(["--only", "nothing"])
    assert "the rows are latency at least once; " in capsys.readouterr().err


def test_the_table_has_the_aim_of_each_row_and_what_is_missing() -> None:
    found = Results([Figure("words", "Penstock", "Kafka", "1 word/s", {}, "LMDB")], {"words, Faust": "no pip"})
    assert table_lines(found) == [
        "| row | contestant | broker | | remark |",
        "|---|---|---|---|---|",
        "| words | Penstock | Kafka | 1 word/s | LMDB |",
        "| aim: words | | | 6 times Quix Streams, as fast as Java | |",
        "missing: words, Faust: no pip",
    ]


def test_a_contestant_that_ends_early_is_reported_with_its_last_words() -> None:
    def see_it_end(one: Running) -> None:
        while True:
            one.check()

    ending = Contestant("ending", lambda job: [sys.executable, "-Ic", "print('no such broker')"])
    with running(ending, JOB) as one, pytest.raises(UnavailableError, match="it has ended: no such broker"):
        see_it_end(one)


def test_what_a_contestant_does_not_promise_is_not_asked_of_it() -> None:
    once = replace(JOB, guarantee="exactly_once_v2")
    with (
        pytest.raises(UnavailableError, match="does not do exactly_once_v2"),
        running(Contestant("", lambda _: []), once),
    ):
        pass


def test_a_contestant_with_one_thread_is_not_asked_for_two() -> None:
    with (
        pytest.raises(UnavailableError, match="one process uses one core"),
        running(Contestant("", lambda _: []), replace(JOB, threads=2)),
    ):
        pass


@pytest.mark.slow
def test_latency_a_map_and_restore_are_measured(
    embedded_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threads, "_WARM_SECONDS", 0.5)
    arguments = ["--only", "latency at least;map;restore", "--contestants", "Penstock", "--json"]
    sizes = ["--seconds", "0.5", "--keys", "1000", "--lines", "200000"]
    assert threads.main([*arguments, *sizes, "--bootstrap", embedded_broker.bootstrap_servers]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["missing"] == {}
    rows = [each["row"] for each in report["figures"]]
    assert rows == ["latency at least once", "map on two cores", "restore into LMDB"]
    assert all(value > 0 for each in report["figures"] for value in each["values"].values())
