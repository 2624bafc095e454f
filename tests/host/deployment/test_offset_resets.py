"""Where an application without positions begins to read: as `auto.offset.reset` says, on each host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import StreamsBuilder
from penstock_broker.common.clock import SystemClock
from tests.host.support import Runner, lines
from tests.host.test_topologies import TEXT


@pytest.mark.parametrize(
    ("offset_reset", "read"), [("by_duration:PT12H", ["new"]), ("by_duration:P30D", ["older", "new"])]
)
def test_an_application_begins_at_the_first_record_that_is_not_older_than_the_duration(
    runner: Runner, unique_name: Callable[[str], str], offset_reset: str, read: list[str]
) -> None:
    source, target, now_ms = unique_name("in"), unique_name("out"), SystemClock().milliseconds()
    runner.create_topics({source: 1, target: 1})
    for text, age_hours in (("ancient", 24 * 365), ("older", 24), ("new", 0)):
        runner.write(source, lines([text], timestamp=now_ms - age_hours * 3_600_000))
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).to(target)
    values = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.key_serde}
    config = runner.config(unique_name("app"), {**values, "auto.offset.reset": offset_reset})
    program = runner.program(builder.build(), config)
    try:
        program.run_to_end()
    finally:
        program.close()
    assert [(each.value or b"").decode() for each in runner.read(target)] == read
