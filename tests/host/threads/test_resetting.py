"""A reset while instances run on other machines is refused, and deletes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.errors import KafkaError, LockError
from penstock.host.threads.resetting import plan_reset, reset
from tests.host.calling_service import calling, rows, values
from tests.host.support import Runner, wait_for

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(1, 1)]

ON_THREADS = pytest.mark.parametrize("runner", ["threads"], indirect=True)


@pytest.mark.parametrize(
    ("protocol", "session"),
    [
        ("classic", r"session\.timeout\.ms \(60000 ms\)"),
        ("streams", r"streams\.session\.timeout\.ms of the group \(45000 ms by default\)"),
    ],
)
@ON_THREADS
def test_a_refused_reset_deletes_nothing(
    runner: Runner,
    application: str,
    topics: tuple[str, str],
    protocol: str,
    session: str,
    unique_name: Callable[[str], str],
) -> None:
    topology = calling(*topics, lambda stream: stream.to_table().to_stream())
    here = runner.config(application, {"group.protocol": protocol})
    elsewhere = here.overridden({"state.dir": str(runner.directory / unique_name("elsewhere"))})
    runner.write(topics[0], rows("a1"))
    runner.run(topology, here)
    with runner.running(topology, elsewhere):
        runner.write(topics[0], rows("b1"))
        wait_for(lambda: values(runner, topics[1]) == ["a1", "b1"])
        planned = plan_reset(topology, here)
        refusal = (
            rf"The group {application} has 1 member: .* at .*Stop them; .* until its {session} has passed\. Nothing"
        )
        with pytest.raises(KafkaError, match=refusal):
            reset(topology, here)
        with pytest.raises(LockError):
            reset(topology, elsewhere)
        assert plan_reset(topology, here) == planned
        assert planned.state_directory is not None
    assert reset(topology, here) == planned
    assert plan_reset(topology, here).state_directory is None
