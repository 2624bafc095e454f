"""What functions of the user log says of which application, task and epoch it is, on each host."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from penstock import Consumed, Serdes, StreamsBuilder
from tests.host.support import Program, Runner, lines

pytestmark = pytest.mark.one_broker

_log = logging.getLogger("shop")


@pytest.mark.usefixtures("marked_log")
@pytest.mark.partitions(2, 1)
def test_lines_of_functions_have_application_task_and_epoch(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, target = topics
    builder = StreamsBuilder()
    seen = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.string()))
    seen.peek(lambda key, value: _log.warning("seen")).to(target)
    runner.write(source, lines(["a", "b"], partitions=2))
    config = runner.config(application, {"default.key.serde": "string", "default.value.serde": "string"})
    start(builder.build(), config).run_to_end()
    seen_by = [vars(line) for line in caplog.records if line.name == "shop"]
    assert {(line["penstock_application"], line["penstock_task"]) for line in seen_by} == {
        (application, "0_0"),
        (application, "0_1"),
    }
    assert all(line["penstock_epoch"] > 0 for line in seen_by)
