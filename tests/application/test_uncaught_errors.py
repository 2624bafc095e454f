"""Errors that stopped all tasks: the handler decides, and the last of them are kept."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.application.uncaught_errors import UncaughtErrors
from penstock.errors import StreamsError
from penstock.host.api import StreamThreadExceptionResponse
from penstock.record import FailedRecord

SHUTDOWN, REPLACE = StreamThreadExceptionResponse.SHUTDOWN_CLIENT, StreamThreadExceptionResponse.REPLACE_THREAD


def raised(error: Exception) -> Exception:
    """Return `error` with a traceback."""
    try:
        raise error
    except type(error) as caught:
        return caught


def test_the_handler_decides_and_its_response_is_kept_with_the_error() -> None:
    errors = UncaughtErrors("app")
    errors.handler = lambda error: REPLACE
    assert errors.response_to(raised(ValueError("no"))) is REPLACE
    count, (kept,) = errors.kept()
    assert (count, kept.error, kept.response, kept.record) == (1, "ValueError: no", REPLACE, None)
    assert kept.traceback.startswith("Traceback")
    assert "raise error" in kept.traceback


def test_the_record_on_which_a_task_failed_is_kept() -> None:
    error = StreamsError("no")
    error.failed_record = FailedRecord("node", "in", 0, 7, "k", "v")
    errors = UncaughtErrors("app")
    errors.response_to(error)
    assert errors.kept()[1][0].record == error.failed_record


def test_without_a_handler_the_application_ends_and_notes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("no")
    error.add_note("try again")
    assert UncaughtErrors("app").response_to(error) is SHUTDOWN
    assert caplog.messages == ["app ends: no\ntry again"]


@pytest.mark.parametrize("answer", [lambda error: 1 / 0, lambda error: None, lambda error: "REPLACE"])
def test_a_handler_that_fails_or_answers_otherwise_ends_the_application(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    errors = UncaughtErrors("app")
    errors.handler = answer
    assert errors.response_to(ValueError("no")) is SHUTDOWN
    assert caplog.messages == ["The uncaught exception handler of app failed itself."]


def test_of_many_and_long_errors_the_newest_and_a_part_are_kept() -> None:
    errors = UncaughtErrors("app")
    errors.handler = lambda error: REPLACE
    for number in range(60):
        errors.response_to(raised(ValueError(f"{number} {'x' * 20_000} end")))
    count, kept = errors.kept()
    assert (count, len(kept)) == (60, 50)
    assert kept[-1].error.startswith("ValueError: 59 x")
    assert kept[-1].traceback.endswith("x end\n")
    assert len(kept[-1].error) == len(kept[-1].traceback) == 10_000
