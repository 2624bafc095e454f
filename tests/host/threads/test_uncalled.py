"""Waiting records of another application are not those of this one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.host.calling_service import Service, asking, calling, rows
from tests.host.support import Program, Runner, wait_for


@pytest.mark.one_broker
@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("runner", ["threads"], indirect=True)
def test_records_of_an_application_whose_name_begins_alike_are_not_reported(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    service: Service,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.is_up = False
    start(asking(*topics), runner.config(f"{application}-eu"))
    runner.write(topics[0], rows("a1"))
    wait_for(lambda: service.calls.total() == 1)
    program = start(calling(*topics, lambda stream: stream.peek(lambda key, value: None)), runner.config(application))
    program.run_to_end()
    program.restart()
    assert f"{application}-eu-ask-answers" in runner.admin.topics()
    assert "wait" not in caplog.text
