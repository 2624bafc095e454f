"""The loop of a process starts, pauses, drops and ends the calls of its operators."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest

from penstock.errors import ConfigError
from penstock.host.calls.measuring import CallFigures
from penstock.host.calls.runner import CallRunner
from penstock.serdes import Serdes
from tests.host.calls.support import (
    CONFIG,
    LIMIT_SECONDS,
    TOPIC,
    Gatekeeper,
    KeptAnswers,
    Run,
    entries,
    running,
    spec,
    until,
    upper,
)


def test_the_calls_of_a_dropped_task_are_cancelled(run: Run, answers: KeptAnswers) -> None:
    cancelled = threading.Event()

    async def call(value: str) -> str:
        if value == "waits":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
        return value

    runner = run(spec(call, attempts=9))
    runner.add("risk", 0, entries(("a", "waits"), ("a", "never")))
    until(lambda: runner.take_measured().get("risk", CallFigures()).in_flight == 1)
    runner.drop("risk", 0)
    assert cancelled.wait(LIMIT_SECONDS)
    runner.add("risk", 1, entries(("a", "other")))
    assert answers.results(1) == ["other"]
    runner.add("risk", 0, entries(("a", "again")))
    assert answers.results(2) == ["other", "again"]


def test_a_known_record_is_called_once(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    runner = run(spec(gate.call))
    runner.add("risk", 0, entries(("a", "x")))
    runner.add("risk", 0, entries(("a", "x"), ("b", "y")))
    assert gate.wait_for(2) == ["x", "y"]
    gate.let_go("x", "y")
    assert sorted(map(str, answers.results(2))) == ["X", "Y"]


def test_no_call_starts_during_a_pause(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    runner = run(spec(gate.call))
    runner.pause()
    runner.add("risk", 0, entries(("a", "x")))
    until(lambda: runner.take_measured().get("risk", CallFigures()).waiting == 1)
    assert gate.begun == []
    runner.resume()
    gate.wait_for(1)
    runner.pause()
    gate.let_go("x")
    assert answers.results(1) == ["X"]


def test_the_end_cancels_calls_and_keeps_answers(answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    runner = running(answers, spec(gate.call))
    gate.let_go("y")
    runner.add("risk", 0, entries(("a", "x"), ("b", "y")))
    assert answers.results(1) == ["Y"]
    runner.close()
    runner.close()
    runner.add("risk", 0, entries(("c", "z")))
    runner.drop("risk", 0)
    assert answers.results(1) == ["Y"]
    assert answers.is_closed


def test_a_runner_without_calls_has_no_thread(answers: KeptAnswers) -> None:
    before = threading.active_count()
    runner = running(answers, spec(upper))
    runner.add("risk", 0, [])
    runner.drop("risk", 0)
    runner.pause()
    runner.resume()
    assert threading.active_count() == before
    assert runner.take_measured() == {}
    runner.close()


def test_the_writer_connects_at_the_start_if_there_are_operators(answers: KeptAnswers) -> None:
    without = KeptAnswers()
    for writer, specs in ((answers, [spec(upper)]), (without, [])):
        running(writer, *specs).close()
    assert (answers.is_opened, without.is_opened) == (True, False)


def test_the_answers_of_a_dropped_task_are_awaited() -> None:
    answers = KeptAnswers(settles=False)
    runner = running(answers, spec(upper))
    assert runner.await_written("risk", 0, 0)
    runner.add("risk", 0, entries(("a", "x"), ("b", "y")))
    answers.wait_for(2)
    of_the_first = [*answers.unsettled]
    runner.add("risk", 1, entries(("a", "z")))
    answers.wait_for(3)
    runner.drop("risk", 0)
    assert not runner.await_written("risk", 0, 0.01)
    waiting = threading.Thread(target=lambda: ended.append(runner.await_written("risk", 0, LIMIT_SECONDS)))
    ended: list[bool] = []
    waiting.start()
    for settled in of_the_first:
        settled()
    waiting.join(LIMIT_SECONDS)
    assert ended == [True]
    assert not runner.await_written("risk", 1, 0.01)
    runner.close()
    assert runner.await_written("risk", 1, 0)


def test_operators_have_their_own_limits(run: Run, answers: KeptAnswers) -> None:
    gate = Gatekeeper()
    runner = run(spec(gate.call, capacity=1), spec(upper, node="score"))
    runner.add("risk", 0, entries(("a", "x"), ("b", "y")))
    runner.add("score", 0, entries(("a", "z")))
    assert answers.results(1) == ["Z"]
    gate.wait_for(1)
    figures: Mapping[str, CallFigures] = runner.take_measured()
    assert (figures["risk"].in_flight, figures["risk"].waiting) == (1, 2)
    assert (figures["score"].answered, figures["score"].latency.number) == (1, 1)
    gate.let_go("x", "y")


def test_calls_start_at_a_rate(run: Run, answers: KeptAnswers) -> None:
    run(spec(upper, rate=1_000)).add("risk", 0, entries(*((str(n), str(n)) for n in range(40))))
    assert answers.results(40) == [str(n) for n in range(40)]


def test_a_missing_serde_is_found_at_the_start(answers: KeptAnswers) -> None:
    without = replace(spec(upper), value_serde=None)
    with pytest.raises(ConfigError, match=r"'risk-calls'.*value serde.*value_serde=.*default.value.serde"):
        CallRunner([without], {"risk": TOPIC}, CONFIG, answers, print)
    default = CONFIG.overridden({"default.value.serde": Serdes.string()})
    CallRunner([without], {"risk": TOPIC}, default, answers, print).close()
