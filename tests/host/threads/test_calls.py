"""Calls of several instances on the threads host: one takes over the waiting records and the answers of another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.config import StreamsConfig
from penstock.host.threads.host import ThreadsHost
from penstock.record import TopicPartition
from tests.host.calling_service import Service, asking, rows, values
from tests.host.support import Listening, wait_for
from tests.host.threads.runner import ThreadsRunner

pytestmark = [
    pytest.mark.one_broker,
    pytest.mark.partitions(2, 1),
    pytest.mark.parametrize("runner", ["threads"], indirect=True),
]


@contextmanager
def instance(
    runner: ThreadsRunner, topics: tuple[str, str], config: StreamsConfig, state: Path
) -> Iterator[ThreadsHost]:
    """An instance of an application, with a state directory of its own."""
    host = runner.host(asking(*topics), config.overridden({"state.dir": str(state)}))
    host.start(Listening())
    try:
        yield host
    finally:
        assert host.close(60_000)


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("is_answered", [False, True])
def test_another_instance_continues_the_calls_of_one_that_ends(
    runner: ThreadsRunner,
    application: str,
    topics: tuple[str, str],
    service: Service,
    tmp_path: Path,
    standbys: int,
    is_answered: bool,
) -> None:
    settings = {"num.standby.replicas": standbys, "processing.guarantee": "exactly_once_v2"}
    config = runner.config(application, settings)
    answers = [TopicPartition(f"{application}-ask-answers", number) for number in range(2)]
    service.is_up = False
    for partition in range(2):
        runner.write(topics[0], rows(f"a{partition}", f"b{partition}", partition=partition))
    with ExitStack() as running:
        with instance(runner, topics, config, tmp_path / "one") as one:
            wait_for(lambda: service.calls.total() == 4)
            one.pause()
            if is_answered:
                service.is_up = True
                wait_for(lambda: sum(runner.admin.end_offsets(answers).values()) == 4)
            assert values(runner, topics[1]) == []
            if standbys:
                other = running.enter_context(instance(runner, topics, config, tmp_path / "other"))
                wait_for(lambda: has_a_copy(other))
        service.is_up = True
        if not standbys:
            running.enter_context(instance(runner, topics, config, tmp_path / "other"))
        number = 1 if is_answered else 2
        wait_for(lambda: sorted(values(runner, topics[1])) == [f"{name} {number}" for name in ("a0", "a1", "b0", "b1")])
    assert set(service.calls.values()) == {number}


def has_a_copy(host: ThreadsHost) -> bool:
    """Return whether standby tasks of an instance have waiting records."""
    return sum((host.statistics().standbys or {}).values()) > 0
