"""What one client may cost the embedded broker, and the others."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.batch import InvalidBatchError
from penstock.broker.connection import Connections
from penstock.broker.process import BrokerProcess
from penstock.broker.records import MOST_DECOMPRESSED, record_times
from penstock.broker.wire import MOST_ELEMENTS
from tests.support.protocol_client import API_VERSIONS, ProtocolClient
from tests.support.record_batches import BatchRecord, Compression, encode_batch

METADATA = 3
MIB = 1024 * 1024


def resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory of a process is read from /proc")
def test_memory_follows_what_has_arrived_and_not_what_is_announced(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, ProtocolClient(broker.bootstrap_servers) as client, ExitStack() as opened:
        client.call(API_VERSIONS, 3, {})
        assert broker.pid is not None
        before = resident_bytes(broker.pid)
        host, _, port = broker.bootstrap_servers.rpartition(":")
        for _ in range(30):
            connection = opened.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(struct.pack(">i", 100 * MIB) + b"x" * 100)
        for _ in range(3):  # by then the broker has taken note of them
            client.call(API_VERSIONS, 3, {})
        assert resident_bytes(broker.pid) - before < 64 * MIB


def test_a_large_request_arrives_whole(embedded_broker: BrokerProcess) -> None:
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        answer = client.call(METADATA, 12, {"topics": [{"name": "n" * 200 + str(n)} for n in range(5_000)]})
        assert len(answer["topics"]) == 5_000


def test_a_request_of_too_many_elements_closes_its_connection_alone(embedded_broker: BrokerProcess) -> None:
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        with ProtocolClient(embedded_broker.bootstrap_servers) as greedy:
            greedy.send(METADATA, 1, {"topics": [{"name": "n"}] * (MOST_ELEMENTS + 1)})
            with pytest.raises((ConnectionError, EOFError, struct.error)):
                greedy.receive(METADATA, 1)
        assert client.call(API_VERSIONS, 3, {})["error_code"] == 0


@pytest.mark.parametrize("compression", [each for each in Compression if each.value])
def test_records_that_decompress_to_too_much_are_refused(compression: Compression) -> None:
    large = BatchRecord(1000, b"key", bytes(MOST_DECOMPRESSED))
    batch = memoryview(bytes(encode_batch([large], compression=compression)))
    assert len(batch) < MOST_DECOMPRESSED // 4
    with pytest.raises(InvalidBatchError, match="cannot be read"):
        next(record_times(batch))


class FakeConnection:
    def __init__(self, is_idle: bool = True) -> None:
        self.is_idle = is_idle
        self.closed = asyncio.Event()

    def close(self) -> None:
        self.closed.set()


def test_the_connection_that_is_idle_longest_makes_room() -> None:
    connections = Connections(most=3, max_idle_ms=60_000)
    waiting, idle, used, new, last = (FakeConnection(is_idle) for is_idle in (False, True, True, True, True))
    entering: Any
    for entering in (waiting, idle, used):
        assert connections.enter(entering)
    again: Any = idle
    connections.note_use(again)
    entering = new
    assert connections.enter(entering)
    assert [each.closed.is_set() for each in (waiting, idle, used)] == [False, False, True]
    for each in (idle, new):
        each.is_idle = False
    entering = last
    assert not connections.enter(entering)


def test_an_idle_connection_is_closed_after_a_time() -> None:
    async def closes() -> None:
        connections = Connections(most=3, max_idle_ms=20)
        idle, waiting = FakeConnection(), FakeConnection(is_idle=False)
        entering: Any
        for entering in (idle, waiting):
            connections.enter(entering)
        closing = asyncio.create_task(connections.close_idle())
        await asyncio.wait_for(idle.closed.wait(), 30)
        assert not waiting.closed.is_set()
        closing.cancel()

    asyncio.run(closes())
