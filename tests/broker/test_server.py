"""The process of a broker: its data directory, its address and its start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.testing import EmbeddedBroker
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import BrokerError
from penstock_broker.process import BrokerProcess
from penstock_broker.server import run
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.protocol_client import ProtocolClient
from tests.support.topic_requests import create
from tests.support.waiting import until

WAIT = 60


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, ProtocolClient(broker.bootstrap_servers) as client:
        with pytest.raises(BrokerError, match=rf"in use by another broker \(process {broker.pid}\); stop that one"):
            BrokerProcess(tmp_path / "data").start()
        assert create(client, "topic", 1)["error_code"] == ErrorCode.none


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} of 127.0.0.1 is in use by another program"):
            BrokerProcess(tmp_path, port=port).start()


def test_a_full_disk_is_refused_at_start(tmp_path: Path) -> None:
    too_much = shutil.disk_usage(tmp_path).free * 2
    with pytest.raises(BrokerError, match="of free disk space; it needs"):
        run(BrokerConfig(data_dir=tmp_path, min_free_bytes=too_much))


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerError, match=r"data cannot be used: .* \(--data-dir of a broker\)"):
        BrokerProcess(tmp_path / "file" / "data").start()
    with pytest.raises(BrokerError, match=r"data cannot be used: .* \(--data-dir of a broker\)"):
        run(BrokerConfig(data_dir=tmp_path / "file" / "data"))


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        producer.produce("topic", b"value")
        assert producer.flush(WAIT) == 0
    [log] = (path for path in tmp_path.glob("topics/*/0/*.log") if path.stat().st_size)
    shutil.rmtree(log.parent)
    log.parent.write_text("")
    with pytest.raises(BrokerError, match=rf"^cannot open {log.parent}.*: Not a directory; the files"):
        BrokerProcess(tmp_path).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, None])
def test_a_stop_leaves_nothing_to_recover(tmp_path: Path, number: signal.Signals | None) -> None:
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    client = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    client.produce("topic", b"value")
    assert client.flush(WAIT) == 0
    assert broker.pid is not None
    if number is not None:
        os.kill(broker.pid, number)
        assert until(lambda: broker.pid is None)
    broker.stop()
    # The file of an index is written when the log is on disk.
    assert [path.with_suffix(".index").exists() for path in tmp_path.glob("topics/*/*/*.log")] == [True]
