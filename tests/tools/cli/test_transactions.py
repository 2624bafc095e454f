"""`penstock transactions` and `penstock topics describe --json`, on every broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.testing import EmbeddedBroker
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.brokers import RunningBroker
from tests.support.commands import Run
from tests.support.protocol_client import ProtocolClient
from tests.support.transactions import Transactions
from tests.support.waiting import until


@pytest.fixture
def run(broker: RunningBroker, penstock_here: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process with the broker's address in the environment."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    return penstock_here


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ProtocolClient]:
    with ProtocolClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(run: Run, unique_name: Callable[[str], str]) -> str:
    name = unique_name("t")
    assert run("topics", "create", name, "-p", "2").code == 0
    return name


@pytest.fixture
def transaction(client: ProtocolClient, topic: str, unique_name: Callable[[str], str]) -> Iterator[Transactions]:
    """An open transaction with two records at offset 0 of partition 0."""
    opened = Transactions(client, unique_name("x"))
    opened.find_coordinator()
    assert opened.begin() == ErrorCode.none
    # On Kafka, a broker hears of a topic a moment after its creation.
    assert until(lambda: opened.add(topic, 0) == [ErrorCode.none])
    assert until(lambda: opened.produce(topic, 0, b"one", b"two") == ErrorCode.none)
    yield opened
    opened.end(is_commit=False)


def answer(run: Run, *arguments: str) -> Any:
    ended = run(*arguments, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_transactions_are_listed_by_state_producer_and_duration(run: Run, transaction: Transactions) -> None:
    producer_id, _ = transaction.producer
    row = {"transactional_id": transaction.transactional_id, "producer_id": producer_id, "state": "Ongoing"}

    def listed(*options: str) -> list[Any]:
        return [one for one in answer(run, "transactions", "list", *options) if one["producer_id"] == producer_id]

    of_producer = ("--producer-id", str(producer_id))
    assert listed() == [row]
    assert listed("--state", "Ongoing", "--state", "Empty") == [row]
    assert listed("--state", "CompleteCommit") == []
    assert answer(run, "transactions", "list", *of_producer) == [row]
    assert listed("--longer-than", "3600000") == []
    assert listed("--pattern", f".*{transaction.transactional_id[-4:]}") == [row]
    assert listed("--pattern", "no-such.*") == []
    table = run("transactions", "list", *of_producer).out
    assert table.startswith("transactional id")
    assert str(producer_id) in table
    assert "…" not in table
    unknown = run("transactions", "list", "--state", "Busy")
    assert unknown.code == 1
    assert "do not know the state Busy" in unknown.err


def test_a_transaction_is_described_with_its_partitions(run: Run, topic: str, transaction: Transactions) -> None:
    found = answer(run, "transactions", "describe", transaction.transactional_id)
    assert (found["producer_id"], found["producer_epoch"]) == transaction.producer
    assert (found["state"], found["coordinator"], found["timeout_ms"]) == ("Ongoing", 1, 60_000)
    assert found["partitions"] == [{"topic": topic, "partition": 0}]
    assert found["start_ms"] > 1_000_000_000_000
    assert 0 <= found["duration_ms"] < 600_000
    shown = run("transactions", "describe", transaction.transactional_id).out
    assert f"partitions: {topic}-0\n" in shown
    transaction.end()
    assert until(
        lambda: answer(run, "transactions", "describe", transaction.transactional_id)["state"] == "CompleteCommit"
    )
    ended = answer(run, "transactions", "describe", transaction.transactional_id)
    assert (ended["partitions"], ended["start_ms"], ended["duration_ms"]) == ([], None, None)
    missing = run("transactions", "describe", "no-such-id")
    assert missing.code == 1
    assert "There is no transactional id 'no-such-id'" in missing.err
    assert "penstock transactions list" in missing.err


def test_producers_of_a_partition_are_shown(run: Run, topic: str, transaction: Transactions) -> None:
    [found] = answer(run, "transactions", "producers", topic, "0")
    assert (found["producer_id"], found["producer_epoch"]) == transaction.producer
    assert (found["transaction_start"], found["last_sequence"]) == (0, 1)
    assert answer(run, "transactions", "producers", topic, "1", "--broker", "1") == []
    assert "There is no broker 7" in run("transactions", "producers", topic, "0", "--broker", "7").err
    for name, partition in (("no-such-topic", "0"), (topic, "2")):
        missing = run("transactions", "producers", name, partition)
        assert missing.code == 1
        assert "penstock topics list" in missing.err


@pytest.mark.parametrize("by_offset", [True, False])
def test_a_transaction_is_aborted_by_its_offset_or_its_producer(
    run: Run, topic: str, transaction: Transactions, by_offset: bool
) -> None:
    producer_id, epoch = transaction.producer
    of_producer = ("--producer-id", str(producer_id), "--producer-epoch", str(epoch), "--coordinator-epoch", "0")
    ended = run("transactions", "abort", topic, "0", *(("--start-offset", "0") if by_offset else of_producer))
    assert (ended.code, ended.out) == (0, f"Aborted the transaction of producer {producer_id} in {topic}-0.\n")
    assert until(lambda: answer(run, "transactions", "producers", topic, "0")[0]["transaction_start"] is None)
    again = run("transactions", "abort", topic, "0", "--start-offset", "0")
    assert again.code == 1
    assert f"No open transaction begins at offset 0 of {topic}-0" in again.err
    # Two offsets of records, one of the marker.
    assert answer(run, "topics", "describe", topic)[0]["partitions"][0]["end"] == 3


def test_a_transactional_id_is_terminated(run: Run, topic: str, transaction: Transactions) -> None:
    name = transaction.transactional_id
    ended = run("transactions", "terminate", name)
    assert (ended.code, ended.out) == (0, f"Fenced the producer of {name}; its transaction was Ongoing.\n")
    assert answer(run, "transactions", "describe", name)["state"] in ("Empty", "CompleteAbort")
    assert until(lambda: answer(run, "transactions", "producers", topic, "0")[0]["transaction_start"] is None)
    assert transaction.end() != ErrorCode.none
    missing = run("transactions", "terminate", "no-such-id")
    assert missing.code == 1
    assert "There is no transactional id 'no-such-id'" in missing.err


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--producer-id", "1"),
        ("--producer-id", "1", "--producer-epoch", "0"),
        ("--start-offset", "0", "--producer-id", "1"),
    ],
)
def test_an_abort_needs_an_offset_or_a_producer(penstock_here: Run, options: tuple[str, ...]) -> None:
    refused = penstock_here("transactions", "abort", "t", "0", *options)
    assert refused.code == 2
    assert "--start-offset, or --producer-id" in refused.err


def test_an_epoch_that_is_over_is_refused(run: Run, topic: str, transaction: Transactions) -> None:
    producer_id, epoch = transaction.producer
    stale = ("--producer-id", str(producer_id), "--producer-epoch", str(epoch - 1), "--coordinator-epoch", "0")
    refused = run("transactions", "abort", topic, "0", *stale)
    assert refused.code == 1
    assert "INVALID_PRODUCER_EPOCH" in refused.err or "UNKNOWN_SERVER_ERROR" in refused.err


def test_topics_are_described_in_json(run: Run, topic: str) -> None:
    [found] = answer(run, "topics", "describe", topic)
    partition = {"leader": 1, "replicas": [1], "in_sync": [1], "first": 0, "end": 0}
    assert found == {
        "topic": topic,
        "configs": {},
        "partitions": [{"partition": number, **partition} for number in (0, 1)],
    }


def test_open_transactions_that_their_coordinator_knows_do_not_hang(
    run: Run, topic: str, transaction: Transactions
) -> None:
    for options in ((), ("--broker", "1")):
        assert (
            answer(run, "transactions", "find-hanging", "--max-transaction-timeout", "0", "-t", topic, *options) == []
        )
    assert transaction.end() == ErrorCode.none
    assert run("transactions", "find-hanging", "--broker", "7").code == 1
    assert run("transactions", "find-hanging", "-t", "no-such-topic").code == 1


def test_a_transaction_hangs_that_its_coordinator_does_not_know(
    penstock_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker() as broker, ProtocolClient(broker.bootstrap_servers) as client:
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        broker.create_topic("orders")
        hanging = Transactions(client, "billing-1")
        hanging.begin()
        hanging.add("orders", 0)
        assert hanging.produce("orders", 0, b"one") == ErrorCode.none
        broker.fail("DescribeTransactions", "TRANSACTIONAL_ID_NOT_FOUND", times=1)
        [found] = answer(penstock_here, "transactions", "find-hanging")
        producer_id, epoch = hanging.producer
        idle_ms = found.pop("idle_ms")
        assert idle_ms > 1_000_000_000_000
        assert found == {
            "topic": "orders",
            "partition": 0,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "transaction_start": 0,
            "transactional_id": "billing-1",
        }
        assert answer(penstock_here, "transactions", "find-hanging") == []
