"""The broker's database: its rows, its checksum, and files that are refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock_broker.errors import BrokerError
from penstock_broker.process import BrokerProcess

WAIT = 60


def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(BrokerError, match=r"cannot open the broker's metadata .*metadata\.sqlite"):
        BrokerProcess(tmp_path).start()


def test_records_without_their_metadata_are_refused_and_kept(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        producer.produce("topic", b"value")
        assert producer.flush(WAIT) == 0
    metadata = tmp_path / "metadata.sqlite"
    content = metadata.read_bytes()
    for lost in (metadata.unlink, partial(metadata.write_bytes, b"")):
        lost()
        for _ in range(2):
            with pytest.raises(BrokerError, match=r"metadata\.sqlite is missing or empty, but .*topics has records"):
                BrokerProcess(tmp_path).start()
        assert any(path.stat().st_size for path in tmp_path.glob("topics/*/0/*.log"))
    metadata.write_bytes(content)
    with BrokerProcess(tmp_path):
        pass
