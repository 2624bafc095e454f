"""Kills of the broker at random moments while it compacts what an idempotent producer writes.

PENSTOCK_CRASH=all goes through more kills; PENSTOCK_CRASH_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock_broker.batch import read_header
from penstock_broker.process import BrokerProcess
from penstock_broker.records import read_records
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import FETCH
from tests.support.ports import free_port
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.topic_requests import create, fetch_body, fetched, produce

KILLS = 60 if os.environ.get("PENSTOCK_CRASH") == "all" else 6
SEED = int(os.environ.get("PENSTOCK_CRASH_SEED", "0"))
TOPIC = "compacted"
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
}


class Writer:
    """An idempotent producer that sends one batch after the other, and repeats the one without an answer."""

    def __init__(self, seed: int) -> None:
        self._choice = random.Random(seed)
        self._sequence = 0
        self.unanswered: list[BatchRecord] = []
        self.expected: dict[bytes, bytes | None] = {}
        self.answers = 0

    def write(self, client: ProtocolClient, more: int, then: Callable[[], object]) -> None:
        """Send batches until the broker is gone, and call `then` when `more` of them are answered."""
        wanted = self.answers + more
        while True:
            if self.answers == wanted and not self.unanswered:
                then()
            if not self.unanswered:
                numbers = range(self._sequence, self._sequence + self._choice.randrange(1, 4))
                self.unanswered = [BatchRecord(1, self._key(), self._value(number)) for number in numbers]
            sequenced = {"producer_id": 7, "producer_epoch": 0, "base_sequence": self._sequence}
            data = {"index": 0, "records": bytes(encode_batch(self.unanswered, **sequenced))}
            answer = produce(client, TOPIC, topic_data=[{"name": TOPIC, "partition_data": [data]}])
            assert answer["error_code"] == ErrorCode.none
            self.answers += 1
            self._sequence += len(self.unanswered)
            self.expected |= {record.key: record.value for record in self.unanswered if record.key is not None}
            self.unanswered = []

    def _key(self) -> bytes:
        return b"%d" % self._choice.randrange(20)

    def _value(self, number: int) -> bytes | None:
        return None if self._choice.random() < 0.1 else b"%d" % number * self._choice.randrange(1, 40)


def last_values(client: ProtocolClient) -> tuple[dict[bytes, bytes | None], int]:
    """The last value of each key, and how many records the log has."""
    found: dict[bytes, bytes | None] = {}
    offset, count = 0, 0
    while True:
        answer = fetched(client.call(FETCH, 16, fetch_body(client, TOPIC, offset)))
        assert answer["error_code"] == ErrorCode.none
        if offset == answer["high_watermark"]:
            return found, count
        view = memoryview(bytes(answer["records"]))
        assert view
        while view:
            header = read_header(view)
            for record in read_records(view[: header.size]):
                assert record.key is not None
                found[record.key] = record.value
                count += 1
            view, offset = view[header.size :], header.next_offset


@pytest.mark.crash
def test_kills_while_a_log_is_compacted_lose_nothing(tmp_path: Path) -> None:
    choice, writer = random.Random(SEED), Writer(SEED)
    with BrokerProcess(tmp_path, port=free_port(), arguments=("--log-cleaner-backoff-ms", "1")) as process:
        with ProtocolClient(process.bootstrap_servers) as client:
            configs = [{"name": name, "value": value} for name, value in CONFIGS.items()]
            assert create(client, TOPIC, 1, configs=configs)["error_code"] == ErrorCode.none
        for _ in range(KILLS):
            killer = threading.Thread(target=process.kill)
            with ProtocolClient(process.bootstrap_servers) as client, pytest.raises(ConnectionError):
                writer.write(client, choice.randrange(20, 120), killer.start)
            killer.join()
            process.start()
            with ProtocolClient(process.bootstrap_servers) as client:
                found, count = last_values(client)
                behind = {key for key, value in writer.expected.items() if found.get(key) != value}
                # The batch without an answer may be there.
                assert behind <= {record.key for record in writer.unanswered}
        assert count < writer.answers
