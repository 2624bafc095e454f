"""The life of a broker process: start, refusal to start, end, and death at any moment."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import EmbeddedBroker
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import BrokerError
from penstock_broker.process import LOG_NAME, BrokerProcess
from penstock_broker.server import run
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import CREATE_TOPICS, DELETE_TOPICS, METADATA, PRODUCE
from tests.support.ports import free_port
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.waiting import until

WAIT = 60
SEEDS = range(10) if os.environ.get("PENSTOCK_CRASH") == "all" else range(1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", port=free_port())
    yield process
    process.stop()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A zombie is gone too: only its parent has not noticed.
    with suppress(FileNotFoundError, ProcessLookupError):
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    return True


def create_topic(broker: BrokerProcess, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic("topic", partitions, 1)])["topic"].result(WAIT)


def read_all(broker: BrokerProcess) -> list[bytes | None]:
    client = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "log_level": 0})
    _, end = client.get_watermark_offsets(TopicPartition("topic", 0), timeout=WAIT)
    client.assign([TopicPartition("topic", 0, 0)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + WAIT
    while len(found) < end and time.monotonic() < deadline:
        found += [message.value() for message in client.consume(end - len(found), 1.0)]
    client.close()
    assert len(found) == end
    return found


def test_it_is_ready_when_started_and_gone_when_stopped(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "new" / "data") as broker:
        pid = broker.pid
        assert pid is not None
        create_topic(broker)
    assert broker.pid is None
    assert until(lambda: is_gone(pid))


def test_an_address_before_the_start_is_an_error(broker: BrokerProcess) -> None:
    with pytest.raises(BrokerError, match="not started"):
        _ = broker.bootstrap_servers


def test_it_cannot_be_started_twice(broker: BrokerProcess) -> None:
    broker.start()
    with pytest.raises(BrokerError, match="is already running"):
        broker.start()


def test_a_second_broker_on_the_same_directory_is_refused(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.start()
    with pytest.raises(BrokerError, match=rf"in use by another broker \(process {broker.pid}\); stop that one"):
        BrokerProcess(tmp_path / "data").start()
    create_topic(broker)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} of 127.0.0.1 is in use by another program"):
            BrokerProcess(tmp_path, port=port).start()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::", "example.org", ""])
def test_an_address_that_others_can_reach_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(BrokerError, match="has no access control"):
        BrokerConfig(data_dir=tmp_path, host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_is_taken(tmp_path: Path, host: str) -> None:
    assert BrokerConfig(data_dir=tmp_path, host=host).host == host


@pytest.mark.parametrize("setting", ["num_partitions", "segment_bytes", "max_request_bytes", "max_partitions"])
def test_a_setting_that_cannot_be_is_refused(tmp_path: Path, setting: str) -> None:
    wrong: dict[str, int] = {setting: 0}
    with pytest.raises(BrokerError, match=f"{setting} is 0"):
        BrokerConfig(data_dir=tmp_path, **wrong)  # type: ignore[arg-type]  # one of several names of the same type


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


def test_the_command_line_says_the_address_and_ends_on_signals(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        command = [sys.executable, "-m", "penstock_broker", "--data-dir", str(tmp_path), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Kafka broker is ready: bootstrap.servers=127.0.0.1:")
            process.send_signal(number)
            assert process.wait(WAIT) == 0


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


def test_the_command_line_says_what_is_wrong(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock_broker", "--data-dir", str(tmp_path), "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot listen on '0.0.0.0'")
    assert "Traceback" not in done.stderr


def test_it_loads_nothing_that_only_tests_need() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "penstock_broker", "--help"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert " penstock_broker.server\n" in loaded
    assert " hypothesis\n" not in loaded
    assert " kio\n" not in loaded


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from penstock_broker.process import BrokerProcess\n"
        f"broker = BrokerProcess(pathlib.Path({str(tmp_path)!r})); broker.start()\n"
        "print(broker.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    assert until(lambda: is_gone(pid))


def test_topics_records_offsets_and_producer_ids_survive_a_kill(broker: BrokerProcess) -> None:
    broker.start()
    address = broker.bootstrap_servers
    create_topic(broker, partitions=2)
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for number in range(100):
        producer.produce("topic", b"%d" % number, partition=0)
    assert producer.flush(WAIT) == 0
    first = Consumer({"bootstrap.servers": address, "group.id": "group", "log_level": 0})
    first.commit(offsets=[TopicPartition("topic", 0, 42)], asynchronous=False)
    broker.kill()
    broker.start()
    assert broker.bootstrap_servers == address
    assert read_all(broker) == [b"%d" % number for number in range(100)]
    second = Consumer({"bootstrap.servers": address, "group.id": "group", "log_level": 0})
    assert second.committed([TopicPartition("topic", 0)], timeout=WAIT)[0].offset == 42
    # The same idempotent producer continues where it was.
    producer.produce("topic", b"100", partition=0)
    assert producer.flush(WAIT) == 0
    assert read_all(broker)[-1] == b"100"
    first.close()
    second.close()


@pytest.mark.crash
@pytest.mark.parametrize("seed", SEEDS)
def test_a_kill_while_producing_loses_no_acknowledged_record(broker: BrokerProcess, seed: int) -> None:
    """Kills the broker at random moments; an idempotent producer continues, and nothing is lost or duplicated."""
    choice = random.Random(seed)
    broker.start()
    create_topic(broker)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "log_level": 0,
        }
    )
    acknowledged: list[int] = []

    def delivered(error: object, message: object) -> None:
        assert error is None
        acknowledged.append(1)

    sent = 0
    for _ in range(5):
        kill_at = len(acknowledged) + choice.randrange(1, 2000)
        killer = threading.Thread(target=broker.kill)
        deadline = time.monotonic() + WAIT
        while len(acknowledged) < kill_at and time.monotonic() < deadline:
            if len(producer) < 1000:
                producer.produce("topic", b"%d" % sent, partition=0, on_delivery=delivered)
                sent += 1
            producer.poll(0)
        killer.start()
        for _ in range(choice.randrange(500)):
            producer.produce("topic", b"%d" % sent, partition=0, on_delivery=delivered)
            sent += 1
        killer.join()
        broker.start()
    assert producer.flush(WAIT) == 0
    assert len(acknowledged) == sent
    assert read_all(broker) == [b"%d" % number for number in range(sent)]


def test_a_disk_that_fills_up_is_answered_with_an_error_and_harms_nothing(tmp_path: Path) -> None:
    """The broker runs with a limit on the size of its files, which fails its writes as a full disk does."""
    batch = bytes(encode_batch([BatchRecord(0, None, b"x" * 60_000)]))
    command = [sys.executable, "-m", "penstock_broker", "--data-dir", str(tmp_path), "--port", "0"]
    limited = ["bash", "-c", 'ulimit -f 400 && exec "$@"', "limited", *command]
    with subprocess.Popen(limited, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        with ProtocolClient(process.stdout.readline().rpartition("=")[2].strip()) as client:
            topics = [{"name": "topic", "num_partitions": 1, "replication_factor": 1}]
            client.call(CREATE_TOPICS, 7, {"topics": topics})
            data = {"name": "topic", "partition_data": [{"index": 0, "records": batch}]}
            request = {"acks": -1, "timeout": 1, "topic_data": [data]}
            answers = [client.call(PRODUCE, 11, request)["responses"][0]["partition_responses"][0] for _ in range(10)]
        process.kill()
    codes = [answer["error_code"] for answer in answers]
    appended = codes.count(ErrorCode.none)
    assert 0 < appended < 10
    assert codes == [ErrorCode.none] * appended + [ErrorCode.kafka_storage_error] * (10 - appended)
    with BrokerProcess(tmp_path) as broker:
        assert len(read_all(broker)) == appended
        assert (tmp_path / LOG_NAME).read_text() == ""


@pytest.mark.crash
@pytest.mark.parametrize("seed", SEEDS)
def test_a_kill_while_topics_come_and_go_leaves_each_there_or_gone(broker: BrokerProcess, seed: int) -> None:
    choice = random.Random(seed)
    there: set[str] = set()
    in_doubt: set[str] = set()
    number = 0
    for _ in range(6):
        broker.start()
        with ProtocolClient(broker.bootstrap_servers) as client:
            killer = threading.Timer(choice.uniform(0.0, 0.1), broker.kill)
            killer.start()
            try:
                while True:
                    number += 1
                    name = f"topic-{number}"
                    client.call(
                        CREATE_TOPICS, 7, {"topics": [{"name": name, "num_partitions": 3, "replication_factor": 1}]}
                    )
                    there.add(name)
                    if choice.random() < 0.5:
                        client.call(DELETE_TOPICS, 6, {"topics": [{"name": name}]})
                        there.remove(name)
            except OSError:
                in_doubt.add(f"topic-{number}")
                killer.join()
    broker.start()
    with ProtocolClient(broker.bootstrap_servers) as client:
        found = client.call(METADATA, 12, {"topics": None})["topics"]
    assert {topic["name"] for topic in found} - in_doubt == there - in_doubt
    assert all(len(topic["partitions"]) == 3 for topic in found)
