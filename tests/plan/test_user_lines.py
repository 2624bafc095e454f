"""Which line of the user's program an error names."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder
from penstock.errors import StreamsError
from penstock.plan.user_lines import called_lines, failing_line
from penstock.testing import TopologyTestDriver

S = Serdes.string()


def in_a_library(value: str) -> Any:
    return json.loads(value)  # the line of the user


def called_by_a_library(value: str) -> Any:
    return reduce(lambda one, other: one + in_a_library(other), [value, value])


def alone(value: str) -> Any:
    raise ValueError(value)  # the line of the user


def caught(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of any class
        call()
    return raised.value


@pytest.mark.parametrize("function", [in_a_library, called_by_a_library, alone])
@pytest.mark.parametrize("execution", ["auto", "record"])
def test_an_error_names_the_users_line_and_not_that_of_a_library(
    function: Callable[[str], Any], execution: str
) -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(function).to("out")
    config = {"default.key.serde": S, "default.value.serde": S, "penstock.execution": execution}
    with TopologyTestDriver(builder.build(), config) as driver:
        error = caught(lambda: driver.create_input_topic("in", S, S).pipe_input("k", "{oops"))
    assert isinstance(error, StreamsError)
    (note,) = error.__notes__
    assert f'File "{__file__}"' in note
    assert note.endswith("# the line of the user")


def test_where_a_library_is_called_directly_the_line_is_its_own() -> None:
    line = failing_line(_raised_in(json.loads))
    assert line is not None
    assert "json" in line


def _raised_in(function: Callable[[str], object]) -> Exception:
    """Return the error of `function` with no line of this file in its traceback."""
    error = caught(lambda: function("{oops"))
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals["__name__"] in (__name__, "_pytest.raises"):
        trace = trace.tb_next
    return error.with_traceback(trace)


def test_of_many_lines_the_first_and_the_last_are_kept() -> None:
    def deep(depth: int) -> object:
        return deeper(depth - 1) if depth else 1 / 0  # the innermost line

    def deeper(depth: int) -> object:
        return deep(depth)

    lines = called_lines(caught(lambda: deep(100))).splitlines()
    assert any("lines are left out" in line for line in lines)
    assert "in caught" in lines[0]
    assert any("# the innermost line" in line for line in lines[-2:])
    assert len(lines) < 60
