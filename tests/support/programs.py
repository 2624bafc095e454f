"""Programs with mistakes in a test: texts, so that their lines are their own."""

from __future__ import annotations

import logging
import re
import traceback

import pytest

_COMMON = """
from datetime import timedelta
from penstock import *
from penstock.testing import TopologyTestDriver
S, J, L = Serdes.string(), Serdes.json(), Serdes.long()
DEFAULTS = {"default.key.serde": S, "default.value.serde": S}
b = StreamsBuilder()
def drive(records=(("k", "v"),), config=DEFAULTS, values=S):
    with TopologyTestDriver(b.build(), config) as driver:
        driver.create_input_topic("in", S, values).pipe_key_value_list(list(records))
        store = driver.get_all_state_stores().get("s")
        return {} if store is None else {key: entry.value for key, entry in store.all()}
"""


def shown_by(program: str, caplog: pytest.LogCaptureFixture) -> str:
    """Return log and traceback of `program`."""
    known = {"__name__": "program"}
    exec(compile(_COMMON, "common.py", "exec"), known)
    shown = ""
    with caplog.at_level(logging.WARNING):
        try:
            exec(compile(program, "program.py", "exec"), known)
        except Exception as error:
            shown = "".join(traceback.format_exception(error))
    return "\n".join([*caplog.messages, shown])


def marked_line(program: str) -> int:
    """Return the number of the line with the mark."""
    return next(number for number, line in enumerate(program.splitlines(), 1) if "#!" in line)


def names_line(shown: str, line: int) -> bool:
    return re.search(rf'program\.py:{line}\b|"program\.py", line {line}\b', shown) is not None


GROUPED = 'b.stream("in").group_by_key()'


TABLE = 'b.table("in", Materialized.as_("t"))'
