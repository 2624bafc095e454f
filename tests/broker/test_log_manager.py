"""What a running broker does with its logs from time to time."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.broker.process import BrokerProcess
from tests.broker.test_protocol import FETCH, create, fetch_body, fetched, produce
from tests.support.protocol_client import ProtocolClient

WAIT_SECONDS = 30


def test_a_running_broker_deletes_old_records_and_serves_what_is_left(tmp_path: Path) -> None:
    arguments = ("--log-retention-check-interval-ms", "20")
    with BrokerProcess(tmp_path, arguments=arguments) as broker, ProtocolClient(broker.bootstrap_servers) as client:
        create(client, "kept", 1, configs=[{"name": "retention.ms", "value": "-1"}])
        create(client, "deleted", 1)
        for topic in ("kept", "deleted"):
            produce(client, topic)
        deadline = time.monotonic() + WAIT_SECONDS
        while fetched(client.call(FETCH, 16, fetch_body(client, "deleted", 3)))["log_start_offset"] != 3:
            assert time.monotonic() < deadline
        assert produce(client, "deleted")["base_offset"] == 3
        assert fetched(client.call(FETCH, 16, fetch_body(client, "kept", 0)))["log_start_offset"] == 0
