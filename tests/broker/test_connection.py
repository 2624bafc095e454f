"""The connections of a broker: limits, the order of answers, and wrong requests."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_broker.apis import APIS, Api
from penstock_broker.config import BrokerConfig
from penstock_broker.connection import Connection, Connections
from penstock_broker.process import BrokerProcess
from penstock_broker.wire.codec import LazyArray
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import DESCRIBE_GROUPS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.topic_requests import fetch_body, fetched, produce


def is_closed(client: ProtocolClient) -> bool:
    try:
        client.receive_frame()
    except (ConnectionError, TimeoutError) as error:
        return not isinstance(error, TimeoutError)
    return False


def serves(broker: BrokerProcess) -> bool:
    with ProtocolClient(broker.bootstrap_servers) as other:
        return bool(other.call(METADATA, 12, {"topics": []})["brokers"])


def test_requests_in_one_go_are_answered_in_order(client: ProtocolClient, topic: str) -> None:
    body = fetch_body(client, topic, 0, max_wait=200)
    client.send(FETCH, 16, body)
    client.send(LIST_OFFSETS, 9, {"replica_id": -1, "topics": []})
    first, second = client.receive_frame(), client.receive_frame()
    assert struct.unpack_from(">i", second)[0] == struct.unpack_from(">i", first)[0] + 1


@pytest.mark.parametrize("piece", [7, 3_000, 1 << 20])
def test_requests_of_all_sizes_are_answered_in_order_however_they_arrive(
    client: ProtocolClient, topic: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = bytearray()
    monkeypatch.setattr(client, "send_frame", lambda content: sent.extend(struct.pack(">i", len(content)) + content))
    sizes = (10, 16_100, 16_300, 20_000, 70_000, 10)
    for size in sizes:
        records = bytes(encode_batch([BatchRecord(1000, b"k", b"v" * size)]))
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        client.send(PRODUCE, 11, {"acks": -1, "timeout": 1000, "topic_data": data})
    monkeypatch.undo()
    for at in range(0, len(sent), piece):
        client.socket.sendall(sent[at : at + piece])
    numbers = [struct.unpack_from(">i", client.receive_frame())[0] for _ in sizes]
    assert numbers == list(range(numbers[0], numbers[0] + len(sizes)))
    assert fetched(client.call(FETCH, 16, fetch_body(client, topic, 0)))["high_watermark"] == len(sizes)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 2**31 - 1, 101 * 1024 * 1024])
def test_a_frame_of_an_impossible_size_closes_its_connection_only(
    embedded_broker: BrokerProcess, client: ProtocolClient, size: int
) -> None:
    client.socket.sendall(struct.pack(">i", size))
    assert is_closed(client)
    assert serves(embedded_broker)


@pytest.mark.parametrize(
    ("key", "version"), [(99, 0), (-1, 0), (METADATA, 99), (METADATA, -1), (PRODUCE, 2), (76, 0), (88, 0)]
)
def test_an_api_that_is_not_served_closes_the_connection(
    embedded_broker: BrokerProcess, client: ProtocolClient, key: int, version: int
) -> None:
    client.send_frame(struct.pack(">hhih", key, version, 1, -1) + b"\x00" * 20)
    assert is_closed(client)
    assert serves(embedded_broker)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    api=st.sampled_from(sorted(set(APIS) - {PRODUCE})),
    data=st.data(),
    garbage=st.binary(max_size=80),
    count=st.sampled_from([b"", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff" * 12]),
)
def test_garbage_never_stops_the_broker(
    embedded_broker: BrokerProcess, api: int, data: st.DataObject, garbage: bytes, count: bytes
) -> None:
    version = data.draw(st.sampled_from(versions_of(api)))
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        client.send_frame(client.header(api, version) + count + garbage)
    assert serves(embedded_broker)


def test_a_client_that_leaves_in_the_middle_of_a_frame_or_a_wait_is_forgotten(
    embedded_broker: BrokerProcess, topic: str
) -> None:
    for _ in range(20):
        with ProtocolClient(embedded_broker.bootstrap_servers) as client:
            client.socket.sendall(struct.pack(">i", 50_000_000) + b"half")
        with ProtocolClient(embedded_broker.bootstrap_servers) as client:
            client.send(FETCH, 16, fetch_body(client, topic, 0, max_wait=60_000))
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        assert produce(client, topic)["error_code"] == ErrorCode.none


def test_a_client_that_does_not_read_does_not_hold_up_others(
    embedded_broker: BrokerProcess, client: ProtocolClient, topic: str
) -> None:
    big = bytes(encode_batch([BatchRecord(0, None, b"x" * 900_000)]))
    for _ in range(30):
        data = {"name": topic, "partition_data": [{"index": 0, "records": big}]}
        client.call(PRODUCE, 11, {"acks": -1, "timeout": 1, "topic_data": [data]})
    body = fetch_body(client, topic, 0, max_bytes=1 << 25)
    body["topics"][0]["partitions"][0]["partition_max_bytes"] = 1 << 25
    with ProtocolClient(embedded_broker.bootstrap_servers) as slow:
        for _ in range(20):
            slow.send(FETCH, 16, body)
        assert serves(embedded_broker)
        sizes = [len(slow.receive_frame()) for _ in range(20)]
    assert sizes == [sizes[0]] * 20
    assert sizes[0] > 7_000_000


class FakeConnection:
    def __init__(self, is_idle: bool = True) -> None:
        self.is_idle = is_idle
        self.closed = asyncio.Event()

    def close(self) -> None:
        self.closed.set()


def test_the_connection_that_is_idle_longest_makes_room(tmp_path: Path) -> None:
    connections = Connections(BrokerConfig(data_dir=tmp_path, max_connections=3))
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


def test_a_broker_that_ends_closes_all_connections_and_takes_no_other(tmp_path: Path) -> None:
    connections = Connections(BrokerConfig(data_dir=tmp_path))
    idle, waiting, late = FakeConnection(), FakeConnection(is_idle=False), FakeConnection()
    entering: Any
    for entering in (idle, waiting):
        assert connections.enter(entering)
    connections.close()
    assert [each.closed.is_set() for each in (idle, waiting)] == [True, True]
    entering = late
    assert not connections.enter(entering)


def test_an_idle_connection_is_closed_after_a_time(tmp_path: Path) -> None:
    async def closes() -> None:
        connections = Connections(BrokerConfig(data_dir=tmp_path, connections_max_idle_ms=20))
        idle, waiting = FakeConnection(), FakeConnection(is_idle=False)
        entering: Any
        for entering in (idle, waiting):
            connections.enter(entering)
        closing = asyncio.create_task(connections.close_idle())
        await asyncio.wait_for(idle.closed.wait(), 30)
        assert not waiting.closed.is_set()
        closing.cancel()

    asyncio.run(closes())


@pytest.mark.parametrize("held", ["unread", "partial"])
def test_connections_that_hold_too_much_memory_are_closed_the_slowest_first(tmp_path: Path, held: str) -> None:
    connections = Connections(BrokerConfig(data_dir=tmp_path, max_unread_bytes=100, max_partial_request_bytes=100))
    holders = {"unread": connections.unread, "partial": connections.partial}[held]
    slowest, going_on, slow, last = (FakeConnection() for _ in range(4))
    each: Any
    for each in (slowest, going_on, slow):
        connections.enter(each)
        holders.note(each, 30)
    done: Any = going_on
    holders.forget(done)
    each = last
    connections.enter(each)
    holders.note(each, 40)
    assert not any(one.closed.is_set() for one in (slowest, going_on, slow, last))
    holders.note(each, 80)
    assert [one.closed.is_set() for one in (slowest, going_on, slow, last)] == [True, False, True, False]


def test_an_answer_that_would_be_too_large_closes_its_connection(tmp_path: Path) -> None:
    async def ask() -> bytes:
        loop = asyncio.get_running_loop()
        state: Any = SimpleNamespace(config=BrokerConfig(data_dir=tmp_path), quotas=SimpleNamespace(are_set=False))
        connections = Connections(state.config)
        member = {"member_id": "", "member_metadata": bytes(1 << 20)}
        groups = LazyArray(range(200), lambda number: {"group_id": str(number), "members": [member]})
        apis = {DESCRIBE_GROUPS: Api(lambda state, request: {"groups": groups}, 0, 0, 0)}
        server = await loop.create_server(lambda: Connection(state, connections, apis), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        frame = struct.pack(">hhih", DESCRIBE_GROUPS, 0, 1, -1) + bytes(4)
        writer.write(struct.pack(">i", len(frame)) + frame)
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        server.close()
        return answer

    with suppress(ConnectionError):  # the other way to see that it is closed
        assert asyncio.run(ask()) == b""
