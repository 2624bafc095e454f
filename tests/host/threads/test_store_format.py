"""Instances of one group with different formats of their stores: the changelogs fit both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.host.support import wait_for
from tests.host.test_store_format import FORMATS, PLAIN, SETTINGS, Application, part, program, reduced
from tests.host.threads.runner import ThreadsProgram, ThreadsRunner

pytestmark = pytest.mark.one_broker


@pytest.mark.parametrize("formats", [FORMATS, FORMATS[::-1]], ids="-".join)
def test_a_task_goes_on_in_an_instance_with_another_format(
    threads_runner: ThreadsRunner, unique_name: Callable[[str], str], tmp_path: Path, formats: tuple[str, str]
) -> None:
    source = unique_name("in")
    threads_runner.create_topics({source: 1})
    made = []
    for name in ("mixed", "lasting"):
        target = unique_name("out")
        threads_runner.create_topics({target: 1})
        made.append(Application(threads_runner, unique_name(name), source, target))
    mixed, lasting = made
    programs: list[ThreadsProgram] = []
    try:
        for number, store_format in enumerate(formats):
            settings = {"num.standby.replicas": 1, "state.dir": str(tmp_path / store_format)}
            config = mixed.config(store_format, **settings)
            threads_runner.write(source, part(number))
            programs.append(threads_runner.program(program(source, mixed.target), config))
            programs[0].run_to_end()
        wait_for(lambda: any(sum((each.host.statistics().standbys or {}).values()) for each in programs))
        programs[0].close()
        threads_runner.write(source, part(2))
        programs[1].run_to_end()
        programs[1].close()
    finally:
        for each in programs:
            each.host.close(60_000)
    lasting.run(formats[1])
    assert mixed.output() == lasting.output()


@pytest.mark.parametrize("stores", [("s", PLAIN), (PLAIN, "s")], ids=["without timestamps", "with timestamps"])
def test_a_table_goes_on_with_timestamps_or_without(
    threads_runner: ThreadsRunner, unique_name: Callable[[str], str], application: str, stores: tuple[Any, Any]
) -> None:
    topics = source, target = unique_name("in"), unique_name("out")
    threads_runner.create_topics(dict.fromkeys(topics, 1))
    for number, store in enumerate(stores):
        threads_runner.write(source, part(number))
        running = threads_runner.program(reduced(source, target, store), threads_runner.config(application, SETTINGS))
        try:
            running.run_to_end()
        finally:
            running.close()
    last = {each.key: each.value for each in threads_runner.read(target)}
    assert (last[b"a"], last[b"b"]) == (b"a0+a30+a40+a70", b"b5+b45")
