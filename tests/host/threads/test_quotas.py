"""A broker that makes an instance wait, since it is above its quota: the instance is slower, and nothing fails."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock import StreamsBuilder
from penstock.client.api import NewTopic
from penstock_broker.process import BrokerProcess
from tests.host.support import lines
from tests.host.test_topologies import TEXT
from tests.host.threads.runner import ThreadsRunner
from tests.support.client_quotas import limited

RATE, RECORDS, SIZE = 100_000, 350, 1_000
"""What a producer may write in a second, and what it has to write: records and bytes of each."""

SHORT_WINDOWS = ("--quota-window-num", "2")
"""A rate is averaged over two seconds."""


@pytest.mark.slow
def test_transactions_above_a_quota_are_committed_though_they_last_longer_than_their_timeout(tmp_path: Path) -> None:
    texts = [f"{number:{SIZE}}" for number in range(RECORDS)]
    builder = StreamsBuilder()
    builder.stream("in", consumed=TEXT).to("out")
    values = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.key_serde}
    values |= {"processing.guarantee": "exactly_once_v2", "producer.transaction.timeout.ms": 1_000}
    with (
        BrokerProcess(tmp_path / "broker", arguments=SHORT_WINDOWS) as broker,
        closing(ThreadsRunner(broker.bootstrap_servers, tmp_path)) as runner,
    ):
        runner.admin.create_topics([NewTopic(name, 1, 1) for name in ("in", "out")])
        runner.write("in", lines(texts))
        with (
            limited(broker.bootstrap_servers, "app-producer", "producer_byte_rate", RATE),
            closing(runner.program(builder.build(), runner.config("app", values))) as program,
        ):
            program.run_to_end()
        assert [(each.value or b"").decode() for each in runner.read("out")] == texts
