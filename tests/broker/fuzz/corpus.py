"""Requests of real clients, recorded between them and a broker."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import KafkaException

from penstock_broker.apis import APIS
from penstock_broker.wire.api_schemas import request_schema
from penstock_broker.wire.codec import structure_codec
from penstock_broker.wire.primitives import Sink
from tests.support.protocol_client import ProtocolClient

WAIT = 20
TOPIC = "fuzzed"


@dataclass
class Recorder:
    """A proxy in front of a broker that keeps the requests of each connection.

    Args:
        bootstrap_servers: address of the broker.
    """

    bootstrap_servers: str
    sessions: list[list[bytes]] = field(default_factory=list)
    port: int = 0

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Listen; gives the address for clients."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
            threading.Thread(target=self._accept, args=(server,), daemon=True).start()
            yield f"127.0.0.1:{self.port}"

    def _accept(self, server: socket.socket) -> None:
        host, _, port = self.bootstrap_servers.rpartition(":")
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                broker = socket.create_connection((host, int(port)))
                session: list[bytes] = []
                self.sessions.append(session)
                # Answers name the broker; clients are to come back to the proxy instead.
                named = [host.encode() + struct.pack(">i", each) for each in (int(port), self.port)]
                for arguments in ((client, broker, session.append, b"", b""), (broker, client, None, *named)):
                    threading.Thread(target=_pass_on, args=arguments, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, note: Any, old: bytes, new: bytes) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            frame = _exactly(source, struct.unpack(">i", _exactly(source, 4))[0])
            if note is not None:
                note(frame)
            if old:
                frame = frame.replace(old, new)
            target.sendall(struct.pack(">i", len(frame)) + frame)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = source.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def record(bootstrap_servers: str) -> list[list[bytes]]:
    """Return the requests of clients that do a little of everything, by connection, without their length prefixes.

    Args:
        bootstrap_servers: a broker on which the topic `fuzzed` may be made.
    """
    recorder = Recorder(bootstrap_servers)
    with recorder.serve() as address:
        settings: dict[str, Any] = {"bootstrap.servers": address, "log_level": 0}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic(f"{TOPIC}-gone", 1, 1)])[TOPIC].result(WAIT)
        for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
            _produce(Producer(settings | {"compression.type": compression}))
        _produce(Producer(settings | {"enable.idempotence": True}))
        for protocol in ("classic", "consumer"):
            _consume(settings | {"group.id": f"fuzzed-{protocol}", "group.protocol": protocol})
        _transact(settings)
        _administer(admin)
        if find_spec("kafka") is not None:
            _kafka_python(address)
    return [session for session in recorder.sessions if session] + [_of_schemas(bootstrap_servers)]


def _produce(producer: Producer) -> None:
    for number in range(20):
        producer.produce(TOPIC, f"value {number}" * 5, key=str(number), headers={"header": "text"})
    assert producer.flush(WAIT) == 0


def _consume(settings: dict[str, Any]) -> None:
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    assert consumer.consume(20, WAIT)
    consumer.commit(asynchronous=False)
    consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1)], timeout=WAIT)
    consumer.close()


def _transact(settings: dict[str, Any]) -> None:
    producer = Producer(settings | {"transactional.id": "fuzzed"})
    consumer = Consumer(settings | {"group.id": "fuzzed-in-transactions"})
    producer.init_transactions(WAIT)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, "value", key="key")
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 1)], consumer.consumer_group_metadata(), WAIT)
        end(WAIT)
    consumer.close()


def _administer(admin: AdminClient) -> None:
    resource = ConfigResource(
        ResourceType.TOPIC,
        TOPIC,
        incremental_configs=[ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)],
    )
    plain = ConfigResource(ResourceType.TOPIC, TOPIC)
    first = TopicPartition(TOPIC, 0)
    for ask in (
        lambda: admin.describe_configs([plain]),
        lambda: admin.incremental_alter_configs([resource]),
        lambda: admin.create_partitions([NewPartitions(TOPIC, 3)]),
        lambda: admin.list_offsets({first: OffsetSpec.latest()}),
        lambda: admin.delete_records([TopicPartition(TOPIC, 0, 1)]),
        lambda: admin.describe_consumer_groups(["fuzzed-classic", "fuzzed-consumer"]),
        lambda: admin.delete_consumer_groups(["fuzzed-classic"]),
        lambda: admin.delete_topics([f"{TOPIC}-gone"]),
    ):
        _wait(ask)
    admin.list_consumer_groups(request_timeout=WAIT).result()
    admin.describe_cluster(request_timeout=WAIT).result()
    admin.list_topics(timeout=WAIT)


def _wait(ask: Any) -> None:
    # A broker may not serve all of it; its requests are wanted alone.
    with contextlib.suppress(KafkaException):
        for future in ask().values():
            with contextlib.suppress(KafkaException):
                future.result(WAIT)


def _kafka_python(address: str) -> None:
    kafka: Any = import_module("kafka")
    producer = kafka.KafkaProducer(bootstrap_servers=address)
    producer.send(TOPIC, b"value").get(WAIT)
    producer.close()
    consumer = kafka.KafkaConsumer(
        TOPIC, bootstrap_servers=address, group_id="fuzzed-python", auto_offset_reset="earliest"
    )
    consumer.poll(timeout_ms=WAIT * 1000, max_records=5)
    consumer.commit()
    consumer.close()


def _of_schemas(bootstrap_servers: str) -> list[bytes]:
    """Requests of the newest version of each API, with nothing in them but the defaults."""
    frames: list[bytes] = []
    with ProtocolClient(bootstrap_servers) as client:
        for key, api in APIS.items():
            codec, sink = structure_codec(request_schema(key).at(api.max_version)), Sink()
            codec.encode(sink, codec.default)
            frames.append(client.header(key, api.max_version) + b"".join(bytes(chunk) for chunk in sink.chunks))
    return frames
