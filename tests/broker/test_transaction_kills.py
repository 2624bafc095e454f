"""Transactions while the broker is killed at random moments: all or nothing, none lost, none twice.

PENSTOCK_CRASH=all goes through 200 kills, else a sample; PENSTOCK_CRASH_SEED repeats one.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.process import BrokerProcess
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.ports import free_port
from tests.support.protocol_client import ProtocolClient
from tests.support.transactions import Transactions

ALL = os.environ.get("PENSTOCK_CRASH") == "all"
SEED = int(os.environ.get("PENSTOCK_CRASH_SEED", "0"))
LIVES = 20 if ALL else 1
KILLS = 10 if ALL else 4
PARTITIONS = 3
WAIT_SECONDS = 60.0
LIBRDKAFKA_EVERY = 5
"""Every so many kills one of the producers is librdkafka's, which takes seconds to find a broker that is back."""
LIBRDKAFKA_SECONDS = 4.0


@dataclass
class Written:
    """What one producer knows of its transactions, by their numbers."""

    records: dict[int, Counter[int]] = field(default_factory=dict)
    """How many records went to each partition."""
    outcomes: dict[int, bool | None] = field(default_factory=dict)
    """Whether it was committed; None where no answer to the end came."""


class Load:
    """Producers that write transactions until the broker is gone.

    Args:
        bootstrap: address of the broker.
        topic: where they write.
        seed: decides about the transactions.
        has_librdkafka: whether one of the producers is librdkafka's.
    """

    def __init__(self, bootstrap: str, topic: str, seed: int, has_librdkafka: bool) -> None:
        self.topic = topic
        self.written: dict[str, Written] = {}
        self.failures: list[BaseException] = []
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._begun = threading.Semaphore(0)
        self._threads = []
        third = self._produce_with_librdkafka if has_librdkafka else self._produce_v2
        for number, produce in enumerate((self._produce_v1, self._produce_v2, third)):
            name = f"{topic}-{number}"
            self.written[name] = Written()
            choice = random.Random(seed * 10 + number)
            self._threads.append(threading.Thread(target=self._run, args=(produce, name, choice), daemon=True))

    def start(self) -> None:
        """Start the producers, and wait until each has ended a transaction."""
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self._begun.acquire(timeout=WAIT_SECONDS), self.failures

    def join(self) -> None:
        """Wait until the producers have noticed that the broker is gone, and that it is back."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
        assert not self.failures, self.failures

    def _run(self, produce: Callable[[str, random.Random, Written], None], name: str, choice: random.Random) -> None:
        try:
            produce(name, choice, self.written[name])
        except ConnectionError:
            pass  # the kill
        except BaseException as error:
            self.failures.append(error)
            self._begun.release()

    def _transactions(self, choice: random.Random, written: Written) -> Iterator[tuple[int, list[int], bool]]:
        """Draw the number of each transaction, the partitions of its records, and whether it is to be committed."""
        for number in range(1_000_000):
            if self._stop.is_set():
                return
            partitions = [choice.randrange(PARTITIONS) for _ in range(choice.randrange(1, 8))]
            written.records[number] = Counter(partitions)
            written.outcomes[number] = None
            yield number, partitions, choice.random() < 0.7
            if number == 0:
                self._begun.release()

    def _produce_v1(self, name: str, choice: random.Random, written: Written) -> None:
        self._produce_by_protocol(name, choice, written, 11, 3, 4)

    def _produce_v2(self, name: str, choice: random.Random, written: Written) -> None:
        self._produce_by_protocol(name, choice, written, 12, 5, 5)

    def _produce_by_protocol(
        self, name: str, choice: random.Random, written: Written, produce: int, commit: int, end: int
    ) -> None:
        with ProtocolClient(self._bootstrap) as client:
            transactions = Transactions(client, name)
            assert transactions.begin() == ErrorCode.none
            for number, partitions, is_commit in self._transactions(choice, written):
                if produce < 12:
                    assert set(transactions.add(self.topic, *set(partitions))) == {ErrorCode.none}
                    assert transactions.add_offsets(name) == ErrorCode.none
                for partition in partitions:
                    value = f"{name}/{number}".encode()
                    assert transactions.produce(self.topic, partition, value, version=produce) == ErrorCode.none
                assert transactions.commit_offset(name, self.topic, number, commit) == ErrorCode.none
                assert transactions.end(is_commit, end) == ErrorCode.none
                written.outcomes[number] = is_commit

    def _produce_with_librdkafka(self, name: str, choice: random.Random, written: Written) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap, "transactional.id": name, "log_level": 0,
                # Without this it may wait without an end to commit offsets (librdkafka issue 5511).
                "metadata.recovery.strategy": "none",
            }
        )  # fmt: skip
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": name, "log_level": 0})
        producer.init_transactions(WAIT_SECONDS)
        for number, partitions, is_commit in self._transactions(choice, written):
            producer.begin_transaction()
            for partition in partitions:
                producer.produce(self.topic, f"{name}/{number}".encode(), partition=partition)
            offsets = [Position(self.topic, 0, number)]
            seconds = LIBRDKAFKA_SECONDS if number else WAIT_SECONDS  # the broker is killed behind the first
            try:
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), seconds)
                if is_commit:
                    producer.commit_transaction(seconds)
                else:
                    producer.abort_transaction(seconds)
            except KafkaException as error:
                # It lost the connection at a moment after which it does not know what the broker has.
                failed: KafkaError = error.args[0]
                assert failed.txn_requires_abort() or failed.fatal() or failed.retriable(), failed
                break
            written.outcomes[number] = is_commit
        consumer.close()


def read_committed(bootstrap: str, topic: str) -> list[tuple[int, str, int]]:
    """Partition, producer and number of the transaction of each record of the committed transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([Position(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[tuple[int, str, int]] = []
    left, deadline = PARTITIONS, time.monotonic() + WAIT_SECONDS
    while left:
        assert time.monotonic() < deadline
        for message in consumer.consume(1_000, 1.0):
            failed = message.error()
            if failed is not None:
                assert failed.code() == KafkaError._PARTITION_EOF, failed
                left -= 1
                continue
            name, _, number = (message.value() or b"").decode().partition("/")
            found.append((message.partition() or 0, name, int(number)))
    consumer.close()
    return found


def ends(bootstrap: str, topic: str, isolation_level: int) -> list[int]:
    with ProtocolClient(bootstrap) as client:
        wanted = [{"partition_index": index, "timestamp": -1} for index in range(PARTITIONS)]
        body = {"replica_id": -1, "isolation_level": isolation_level, "topics": [{"name": topic, "partitions": wanted}]}
        return [one["offset"] for one in client.call(2, 7, body)["topics"][0]["partitions"]]


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    with ProtocolClient(bootstrap) as client:
        wanted = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}], "require_stable": True}
        [one] = client.call(9, 7, wanted)["topics"][0]["partitions"]
        assert one["error_code"] == ErrorCode.none
        offset: int = one["committed_offset"]
        return offset


def assert_all_or_nothing(
    bootstrap: str, topic: str, name: str, written: Written, found: list[tuple[int, int]]
) -> None:
    """Compare what one producer wrote with the partitions and numbers that a reader of committed records found."""
    seen: dict[int, Counter[int]] = {}
    for partition, number in found:
        seen.setdefault(number, Counter())[partition] += 1
    for number, outcome in written.outcomes.items():
        wanted = {True: (written.records[number],), False: (Counter(),), None: (written.records[number], Counter())}
        assert seen.get(number, Counter()) in wanted[outcome], (name, number, outcome)
    assert seen.keys() <= written.outcomes.keys()
    for partition in range(PARTITIONS):
        numbers = [number for where, number in found if where == partition]
        assert numbers == sorted(numbers)
    assert committed_offset(bootstrap, name, topic) == max(seen, default=-1)


@pytest.mark.slow
@pytest.mark.parametrize("life", range(LIVES))
def test_kills_leave_transactions_whole(tmp_path: Path, life: int) -> None:
    choice = random.Random(SEED + life)
    with BrokerProcess(tmp_path / "broker", port=free_port()) as process:
        bootstrap = process.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for kill in range(KILLS):
            topic = f"topic-{kill}"
            for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
                created.result(WAIT_SECONDS)
            load = Load(bootstrap, topic, 1_000 * (SEED + life) + kill, kill % LIBRDKAFKA_EVERY == 0)
            load.start()
            killer = threading.Timer(choice.uniform(0.0, 0.2), process.kill)
            killer.start()
            killer.join()
            process.start()
            load.join()
            for name in load.written:
                # What a producer left open is aborted, as its successor does.
                with ProtocolClient(bootstrap) as client:
                    assert Transactions(client, name).begin() == ErrorCode.none
            assert ends(bootstrap, topic, 0) == ends(bootstrap, topic, 1)
            found = read_committed(bootstrap, topic)
            for name, written in load.written.items():
                of_producer = [(partition, number) for partition, by, number in found if by == name]
                assert_all_or_nothing(bootstrap, topic, name, written, of_producer)
