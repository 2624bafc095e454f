"""What kcat, built on an old librdkafka in most distributions, does with a broker."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from penstock_broker.batch import COMPRESSION_MASK, read_header
from tests.broker.test_clients import UniqueName
from tests.support.api_keys import FETCH
from tests.support.brokers import RunningBroker
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import Compression
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")

FETCH_VERSION = 4
RECORDS = 500
WAIT = 60


def kcat(broker: RunningBroker, *arguments: str, input: str = "") -> str:
    command = ["kcat", "-b", broker.bootstrap_servers, *arguments]
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def produce(broker: RunningBroker, topic: str, lines: list[str], *arguments: str) -> None:
    kcat(broker, "-P", "-t", topic, "-K", ":", *arguments, input="\n".join(lines))


def lines_of(number: int) -> list[str]:
    return [f"key-{each}:a value that compresses well, of number {each}" for each in range(number)]


def compressions(broker: RunningBroker, topic: str) -> set[int]:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1024 * 1024}
    body: dict[str, Any] = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1024 * 1024,
        "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": [wanted]}],
    }
    with ProtocolClient(broker.bootstrap_servers) as client:
        [answer] = client.call(FETCH, FETCH_VERSION, body)["responses"]
    [partition] = answer["partitions"]
    assert partition["error_code"] == 0
    batches = memoryview(partition["records"])
    found = set()
    while batches:
        header = read_header(batches)
        found.add(header.attributes & COMPRESSION_MASK)
        batches = batches[header.size :]
    return found


@pytest.mark.parametrize("compression", list(Compression))
def test_records_of_each_compression_come_back(
    broker: RunningBroker, unique_name: UniqueName, compression: Compression
) -> None:
    topic, lines = unique_name("records"), lines_of(RECORDS)
    produce(broker, topic, lines, "-z", compression.name.lower())
    assert kcat(broker, "-C", "-t", topic, "-e", "-q", "-f", "%k:%s\n").splitlines() == lines
    # A librdkafka before 2.11 silently sends uncompressed records if Produce is not announced from version 0.
    # It sends a batch of a few records as it is, which compression would make larger; not all of these.
    assert compressions(broker, topic) | {Compression.NONE} == {Compression.NONE, compression}
    assert compression in compressions(broker, topic)


def test_a_range_of_offsets_is_read(broker: RunningBroker, unique_name: UniqueName) -> None:
    topic = unique_name("range")
    produce(broker, topic, lines_of(20))
    assert kcat(broker, "-C", "-t", topic, "-o", "7", "-c", "3", "-q", "-f", "%o ") == "7 8 9 "
    assert kcat(broker, "-C", "-t", topic, "-o", "-2", "-e", "-q", "-f", "%o ") == "18 19 "


def test_a_group_goes_on_where_it_stopped(broker: RunningBroker, unique_name: UniqueName) -> None:
    topic, group = unique_name("topic"), unique_name("group")
    produce(broker, topic, lines_of(10))
    read = ("-G", group, "-X", "auto.offset.reset=earliest", "-e", "-q", "-f", "%o ", topic)
    assert kcat(broker, *read).split() == [str(each) for each in range(10)]
    produce(broker, topic, lines_of(5))
    assert kcat(broker, *read).split() == [str(each) for each in range(10, 15)]


def test_metadata_lists_the_topic_and_the_broker(broker: RunningBroker, unique_name: UniqueName) -> None:
    topic = unique_name("listed")
    produce(broker, topic, lines_of(1))
    found = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    [node] = found["brokers"]
    assert node["name"] == broker.bootstrap_servers.replace("localhost", "127.0.0.1")
    assert found["controllerid"] == node["id"]
    [described] = found["topics"]
    assert described["topic"] == topic
    assert [partition["leader"] for partition in described["partitions"]] == [node["id"]]


def test_the_first_offset_at_a_time_is_found(broker: RunningBroker, unique_name: UniqueName) -> None:
    topic = unique_name("times")
    for line in lines_of(3):
        produce(broker, topic, [line])
    times = [int(each) for each in kcat(broker, "-C", "-t", topic, "-e", "-q", "-f", "%T ").split()]
    assert times == sorted(set(times))
    for offset, time in enumerate(times):
        assert kcat(broker, "-Q", "-t", f"{topic}:0:{time}").split() == [topic, "[0]", "offset", str(offset)]
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-2").split()[-1] == "0"
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").split()[-1] == "3"


def test_a_producer_in_a_transaction_is_read_when_it_has_ended(broker: RunningBroker, unique_name: UniqueName) -> None:
    topic, transactional_id = unique_name("topic"), unique_name("id")
    produce(broker, topic, lines_of(10), "-X", f"transactional.id={transactional_id}")

    def read() -> list[str]:
        isolation = ("-X", "isolation.level=read_committed")
        return kcat(broker, "-C", "-t", topic, "-e", "-q", "-f", "%k ", *isolation).split()

    assert until(lambda: len(read()) == 10)  # a broker answers the end of a transaction before its marker is written
