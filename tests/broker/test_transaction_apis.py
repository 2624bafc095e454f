"""Transactions on the wire, on both brokers: every version of their APIs, fencing, and what readers see."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import (
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    WRITE_TXN_MARKERS,
)
from tests.support.brokers import EMBEDDED_ONLY, RunningBroker
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.transactions import Transactions, ready
from tests.support.waiting import until


def partition_field(answer: Message, topics: str = "topics") -> Message:
    """The only partition in an answer."""
    partition: Message = answer[topics][0]["partitions"][0]
    return partition


def end_offset(client: ProtocolClient, topic: str, isolation_level: int, timestamp: int = -1) -> int:
    wanted = {"partition_index": 0, "timestamp": timestamp}
    body = {
        "replica_id": -1, "isolation_level": isolation_level, "topics": [{"name": topic, "partitions": [wanted]}]
    }  # fmt: skip
    offset: int = partition_field(client.call(LIST_OFFSETS, 7, body))["offset"]
    return offset


def fetch_body(topic: str, isolation_level: int, offset: int = 0, **fields: object) -> Message:
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": isolation_level, "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
    } | fields  # fmt: skip


def fetch(client: ProtocolClient, topic: str, isolation_level: int, version: int = 12, offset: int = 0) -> Message:
    return partition_field(client.call(FETCH, version, fetch_body(topic, isolation_level, offset)), "responses")


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ProtocolClient]:
    with ProtocolClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(client: ProtocolClient) -> str:
    name = f"topic-{uuid.uuid4()}"
    wanted = {"name": name, "num_partitions": 2, "replication_factor": 1}
    answer = client.call(CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 10_000})["topics"][0]
    assert answer["error_code"] == ErrorCode.none
    # A real Kafka elects the leaders after its answer.
    assert until(lambda: end_offset(client, name, 0) == 0)
    return name


@pytest.fixture
def transactions(client: ProtocolClient) -> Transactions:
    one = Transactions(client, f"id-{uuid.uuid4()}")
    one.find_coordinator()
    return one


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_init_producer_id(transactions: Transactions, version: int) -> None:
    assert transactions.begin(version) == ErrorCode.none
    producer_id, epoch = transactions.producer
    assert transactions.begin(version) == ErrorCode.none
    assert transactions.producer == (producer_id, epoch + 1)
    assert transactions.begin(version, transactional_id="") == ErrorCode.invalid_request
    assert transactions.begin(version, transaction_timeout=900_001) == ErrorCode.invalid_transaction_timeout
    if version >= 3:
        assert transactions.begin(version, producer_id=producer_id, producer_epoch=epoch + 1) == ErrorCode.none
        assert transactions.producer == (producer_id, epoch + 2)
        fenced = transactions.begin(version, producer_id=producer_id, producer_epoch=epoch)
        assert fenced == (ErrorCode.producer_fenced if version >= 4 else ErrorCode.invalid_producer_epoch)
        assert transactions.begin(version, producer_id=producer_id) == ErrorCode.invalid_request


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_add_partitions(transactions: Transactions, topic: str, version: int) -> None:
    transactions.begin()
    assert transactions.add(topic, 0, 1, version=version) == [ErrorCode.none] * 2
    refused = transactions.add(topic, 0, 7, version=version)
    assert refused == [ErrorCode.operation_not_attempted, ErrorCode.unknown_topic_or_partition]
    old, transactions.producer = transactions.producer, (transactions.producer[0], transactions.producer[1] - 1)
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert transactions.add(topic, 0, version=version) == [fenced]
    transactions.producer = (old[0] + 1_000_000, old[1])
    assert transactions.add(topic, 0, version=version) == [ErrorCode.invalid_producer_id_mapping]


def test_partitions_of_a_transaction_can_be_verified(
    client: ProtocolClient, transactions: Transactions, topic: str
) -> None:
    transactions.begin()
    transactions.add(topic, 1)
    topics = [{"name": topic, "partitions": [0, 1]}]
    body = {"transactions": [transactions.body(verify_only=True, topics=topics)]}
    [result] = client.call(ADD_PARTITIONS_TO_TXN, 5, body)["results_by_transaction"]
    codes = {
        one["partition_index"]: one["partition_error_code"]
        for one in result["topic_results"][0]["results_by_partition"]
    }
    assert codes == {0: ErrorCode.transaction_abortable, 1: ErrorCode.none}


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("is_commit", [True, False])
def test_readers_of_committed_records_see_a_transaction_when_it_is_committed(
    client: ProtocolClient, transactions: Transactions, topic: str, version: int, is_commit: bool
) -> None:
    transactions.begin()
    if version < 12:
        transactions.add(topic, 0)
    assert transactions.produce(topic, 0, b"one", b"two", version=version) == ErrorCode.none
    assert transactions.produce(topic, 0, b"three", version=version) == ErrorCode.none
    assert (end_offset(client, topic, 0), end_offset(client, topic, 1)) == (3, 0)
    assert end_offset(client, topic, 0, timestamp=1) == 0
    assert end_offset(client, topic, 1, timestamp=1) == -1
    assert b"three" in bytes(fetch(client, topic, 0)["records"])
    hidden = fetch(client, topic, 1)
    assert (bytes(hidden["records"] or b""), hidden["last_stable_offset"], hidden["high_watermark"]) == (b"", 0, 3)
    producer_id = transactions.producer[0]
    assert transactions.end(is_commit, version=5 if version >= 12 else 4) == ErrorCode.none
    assert until(lambda: end_offset(client, topic, 1) == 4)
    seen = fetch(client, topic, 1)
    assert b"three" in bytes(seen["records"])
    aborted = [{"producer_id": producer_id, "first_offset": 0}]
    assert (seen["aborted_transactions"] or []) == ([] if is_commit else aborted)
    assert fetch(client, topic, 0)["aborted_transactions"] is None
    assert (fetch(client, topic, 1, offset=4)["aborted_transactions"] or []) == []


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_of_fetch_lists_aborted_transactions(
    client: ProtocolClient, transactions: Transactions, topic: str, version: int
) -> None:
    transactions.begin()
    transactions.add(topic, 0)
    transactions.produce(topic, 0, b"one")
    transactions.end(is_commit=False)
    assert until(lambda: end_offset(client, topic, 1) == 2)
    assert [one["first_offset"] for one in fetch(client, topic, 1, version)["aborted_transactions"]] == [0]


def test_a_fetch_of_committed_records_ends_when_the_transaction_does(
    broker: RunningBroker, client: ProtocolClient, transactions: Transactions, topic: str
) -> None:
    transactions.begin()
    transactions.add(topic, 0)
    transactions.produce(topic, 0, b"one")
    with ProtocolClient(broker.bootstrap_servers) as reader:
        reader.send(FETCH, 12, fetch_body(topic, 1, max_wait=15_000, min_bytes=1))
        transactions.end()
        assert b"one" in bytes(partition_field(reader.receive(FETCH, 12), "responses")["records"])


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_end_txn(transactions: Transactions, topic: str, version: int) -> None:
    transactions.begin()
    begun = transactions.producer
    if version >= 5:
        transactions.produce(topic, 0, b"one", version=12)
    else:
        transactions.add(topic, 0)
        transactions.produce(topic, 0, b"one")
    assert transactions.end(version=version) == ErrorCode.none
    assert transactions.producer == (begun[0], begun[1] + (version >= 5))
    transactions.producer = begun
    # The answer got lost, so the request is repeated.
    assert transactions.end(version=version) == ErrorCode.none
    transactions.producer = begun
    assert transactions.end(is_commit=False, version=version) == ErrorCode.invalid_txn_state
    transactions.producer = (begun[0], begun[1] - 1)
    assert transactions.end(version=version) == (
        ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    )
    transactions.producer = (begun[0] + 1_000_000, begun[1])
    assert transactions.end(version=version) == ErrorCode.invalid_producer_id_mapping


def test_a_producer_that_another_one_replaced_is_fenced(
    broker: RunningBroker, client: ProtocolClient, transactions: Transactions, topic: str
) -> None:
    transactions.begin()
    transactions.add(topic, 0)
    assert transactions.produce(topic, 0, b"lost") == ErrorCode.none
    with ProtocolClient(broker.bootstrap_servers) as other:
        successor = Transactions(other, transactions.transactional_id)
        assert successor.begin() == ErrorCode.none
        assert successor.producer[0] == transactions.producer[0]
        assert successor.producer[1] > transactions.producer[1]
        for version in (10, 11, 12):
            assert transactions.produce(topic, 0, b"zombie", version=version) == ErrorCode.invalid_producer_epoch
        assert transactions.end() == ErrorCode.producer_fenced
        assert successor.produce(topic, 0, b"kept", version=12) == ErrorCode.none
        assert successor.end(version=5) == ErrorCode.none
    assert until(lambda: end_offset(client, topic, 1) == 4)
    assert [one["first_offset"] for one in fetch(client, topic, 1)["aborted_transactions"]] == [0]


def test_records_of_a_transaction_need_a_transactional_id_and_an_added_partition(
    transactions: Transactions, topic: str
) -> None:
    transactions.begin()
    assert transactions.produce(topic, 0, b"one", version=10) == ErrorCode.invalid_txn_state
    assert transactions.produce(topic, 0, b"one", version=11) == ErrorCode.transaction_abortable
    transactions.add(topic, 0)
    transactions.transactional_id, kept = None, transactions.transactional_id  # type: ignore[assignment]  # null
    assert transactions.produce(topic, 0, b"one") == ErrorCode.transactional_id_authorization_failed
    transactions.transactional_id = kept
    assert transactions.produce(topic, 0, b"one") == ErrorCode.none


def test_records_outside_of_the_open_transaction_of_their_producer_are_refused(
    client: ProtocolClient, transactions: Transactions, topic: str
) -> None:
    transactions.begin()
    transactions.add(topic, 0)
    assert transactions.produce(topic, 0, b"one") == ErrorCode.none
    producer_id, epoch = transactions.producer
    plain = encode_batch(
        [BatchRecord(1000, None, b"plain")], producer_id=producer_id, producer_epoch=epoch, base_sequence=1
    )
    data = {"name": topic, "partition_data": [{"index": 0, "records": bytes(plain)}]}
    answer = client.call(PRODUCE, 11, {"acks": -1, "timeout": 5000, "topic_data": [data]})
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.invalid_txn_state


def test_each_transaction_of_version_2_begins_its_sequence_numbers_again(
    client: ProtocolClient, transactions: Transactions, topic: str
) -> None:
    transactions.begin()
    for number in range(3):
        assert transactions.produce(topic, 0, b"a", b"b", version=12) == ErrorCode.none
        assert transactions.end(is_commit=number != 1, version=5) == ErrorCode.none
        transactions.sequences[topic, 0] = 1
        assert transactions.produce(topic, 0, b"gap", version=12) == ErrorCode.out_of_order_sequence_number
        transactions.sequences[topic, 0] = 0
    assert until(lambda: end_offset(client, topic, 0) == 9)
    # Partition 1 knows nothing of the producer.
    transactions.sequences[topic, 1] = 5
    assert transactions.produce(topic, 1, b"gap", version=12) == ErrorCode.out_of_order_sequence_number
    transactions.sequences[topic, 1] = 0
    assert transactions.produce(topic, 1, b"first", version=12) == ErrorCode.none


def test_version_2_aborts_without_records_and_answers_with_the_next_epoch(transactions: Transactions) -> None:
    transactions.begin()
    producer_id, epoch = transactions.producer
    assert transactions.end(is_commit=False, version=5) == ErrorCode.none
    assert transactions.producer == (producer_id, epoch + 1)
    assert transactions.end(is_commit=True, version=5) == ErrorCode.invalid_txn_state
    assert transactions.end(is_commit=False, version=4) == ErrorCode.none


def committed(client: ProtocolClient, group: str, topic: str, require_stable: bool = False) -> tuple[int, int]:
    """Offset and error code of partition 0 of a group."""
    wanted = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    body = wanted | {"require_stable": require_stable}
    ready(lambda: client.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})["coordinators"][0])
    found = partition_field(ready(lambda: client.call(OFFSET_FETCH, 7, body)))
    return found["committed_offset"], found["error_code"]


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_txn_offset_commit(
    client: ProtocolClient, transactions: Transactions, topic: str, version: int
) -> None:
    group = f"group-{uuid.uuid4()}"
    assert committed(client, group, topic) == (-1, ErrorCode.none)
    transactions.begin()
    if version < 5:
        code = ErrorCode.transaction_abortable if version == 4 else ErrorCode.invalid_txn_state
        assert transactions.commit_offset(group, topic, 3, version) == code
        assert transactions.add_offsets(group, min(version, 4)) == ErrorCode.none
    end_version = 5 if version >= 5 else 4
    assert transactions.commit_offset(group, topic, 3, version) == ErrorCode.none
    assert committed(client, group, topic) == (-1, ErrorCode.none)
    assert committed(client, group, topic, require_stable=True) == (-1, ErrorCode.unstable_offset_commit)
    assert transactions.end(version=end_version) == ErrorCode.none
    assert until(lambda: committed(client, group, topic, require_stable=True) == (3, ErrorCode.none))
    if version < 5:
        transactions.add_offsets(group)
    assert transactions.commit_offset(group, topic, 9, version) == ErrorCode.none
    assert transactions.end(is_commit=False, version=end_version) == ErrorCode.none
    assert until(lambda: committed(client, group, topic, require_stable=True) == (3, ErrorCode.none))
    transactions.producer = (transactions.producer[0], transactions.producer[1] - 1)
    assert transactions.commit_offset(group, topic, 9, version) == ErrorCode.invalid_producer_epoch


def test_offsets_of_a_member_that_is_not_there_are_refused(transactions: Transactions, topic: str) -> None:
    transactions.begin()
    transactions.add_offsets("g")
    code = transactions.commit_offset("g", topic, 3, member_id="gone", generation_id_or_member_epoch=4)
    assert code in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_add_offsets(transactions: Transactions, version: int) -> None:
    transactions.begin()
    assert transactions.add_offsets("g", version) == ErrorCode.none
    transactions.producer = (transactions.producer[0], transactions.producer[1] - 1)
    assert transactions.add_offsets("g", version) == (
        ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    )


def test_a_transaction_that_takes_too_long_is_aborted(
    client: ProtocolClient, transactions: Transactions, topic: str
) -> None:
    transactions.begin(transaction_timeout=4_000)  # the record must be written before it is over
    transactions.add(topic, 0)
    assert transactions.produce(topic, 0, b"late") == ErrorCode.none
    assert until(lambda: end_offset(client, topic, 1) == 2)
    assert until(lambda: len(fetch(client, topic, 1)["aborted_transactions"] or ()) == 1)
    assert transactions.produce(topic, 0, b"later") == ErrorCode.invalid_producer_epoch
    assert transactions.end() == ErrorCode.producer_fenced


def test_transactions_are_described_and_listed(client: ProtocolClient, transactions: Transactions, topic: str) -> None:
    transactions.begin()
    name = transactions.transactional_id

    def describe(transactional_id: str) -> Message:
        body = {"transactional_ids": [transactional_id]}
        [state] = client.call(DESCRIBE_TRANSACTIONS, 0, body)["transaction_states"]
        return dict(state)

    def listed(version: int = 1, **filters: object) -> list[str]:
        body: Message = {"state_filters": [], "producer_id_filters": []} | filters
        found = client.call(LIST_TRANSACTIONS, version, body)["transaction_states"]
        return [one["transaction_state"] for one in found if one["transactional_id"] == name]

    assert describe(name)["transaction_state"] == "Empty"
    transactions.add(topic, 0, 1)
    state = describe(name)
    assert (state["transaction_state"], state["transaction_timeout"]) == ("Ongoing", 60_000)
    assert (state["producer_id"], state["producer_epoch"]) == transactions.producer
    assert [(one["topic"], sorted(one["partitions"])) for one in state["topics"]] == [(topic, [0, 1])]
    assert state["transaction_start_time"] > 0
    assert describe("no-such-id")["error_code"] == ErrorCode.transactional_id_not_found
    for version in (0, 1):
        assert listed(version) == ["Ongoing"]
        assert listed(version, state_filters=["Ongoing"]) == ["Ongoing"]
        assert listed(version, state_filters=["CompleteCommit"]) == []
        assert listed(version, producer_id_filters=[transactions.producer[0]]) == ["Ongoing"]
        assert listed(version, producer_id_filters=[transactions.producer[0] + 1_000_000]) == []
    assert listed(duration_filter=3_600_000) == []
    assert listed(2, transactional_id_pattern=None) == ["Ongoing"]
    assert listed(2, transactional_id_pattern=f"{name[:5]}.*") == ["Ongoing"]
    assert listed(2, transactional_id_pattern=name[:5]) == []
    bad = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": "(a"}
    answer = client.call(LIST_TRANSACTIONS, 2, bad)
    assert answer["error_code"] == ErrorCode.invalid_regular_expression
    unknown = client.call(LIST_TRANSACTIONS, 1, {"state_filters": ["Nonsense"], "producer_id_filters": []})
    assert (unknown["unknown_state_filters"], unknown["transaction_states"]) == (["Nonsense"], [])
    transactions.end()
    assert until(lambda: describe(name)["transaction_state"] == "CompleteCommit")


def producers(client: ProtocolClient, topic: str, index: int = 0) -> Message:
    body = {"topics": [{"name": topic, "partition_indexes": [index]}]}
    return partition_field(client.call(DESCRIBE_PRODUCERS, 0, body))


def test_the_producers_of_a_partition_are_described(
    client: ProtocolClient, transactions: Transactions, topic: str
) -> None:
    assert producers(client, topic)["active_producers"] == []
    transactions.begin()
    transactions.add(topic, 0)
    transactions.produce(topic, 0, b"one", b"two")
    [one] = producers(client, topic)["active_producers"]
    assert (one["producer_id"], one["producer_epoch"]) == transactions.producer
    assert (one["last_sequence"], one["current_txn_start_offset"], one["last_timestamp"]) == (1, 0, 1000)
    transactions.end()
    assert until(lambda: producers(client, topic)["active_producers"][0]["current_txn_start_offset"] == -1)
    assert producers(client, topic, 5)["error_code"] == ErrorCode.unknown_topic_or_partition
    assert producers(client, "no-such-topic")["error_code"] == ErrorCode.unknown_topic_or_partition


def test_a_marker_of_an_administrator_ends_a_hanging_transaction(
    client: ProtocolClient, transactions: Transactions, topic: str
) -> None:
    transactions.begin()
    transactions.begin()
    transactions.add(topic, 0)
    transactions.produce(topic, 0, b"hanging")
    producer_id, epoch = transactions.producer

    def mark(epoch: int, partition: int = 0, version: int = 1) -> int:
        marker = {
            "producer_id": producer_id, "producer_epoch": epoch, "transaction_result": False, "coordinator_epoch": 0,
            "topics": [{"name": topic, "partition_indexes": [partition]}], "transaction_version": version,
        }  # fmt: skip
        answer = client.call(WRITE_TXN_MARKERS, version, {"markers": [marker]})["markers"][0]
        code: int = partition_field(answer)["error_code"]
        return code

    assert mark(epoch - 1) == ErrorCode.invalid_producer_epoch
    assert mark(epoch, 5) == ErrorCode.unknown_topic_or_partition
    # In version 2 of transactions the end has a later epoch than the records.
    assert mark(epoch, version=2) == ErrorCode.invalid_producer_epoch
    assert mark(epoch) == ErrorCode.none
    assert until(lambda: end_offset(client, topic, 1) == 2)
    assert mark(epoch, version=2) == ErrorCode.none
    assert len(fetch(client, topic, 1)["aborted_transactions"]) == 1


def test_version_2_of_transactions_is_announced(client: ProtocolClient) -> None:
    for version in (3, 4):
        answer = client.call(API_VERSIONS, version, {"client_software_name": "test", "client_software_version": "1"})
        # In version 3 Kafka leaves out what is supported from level 0.
        supported = {one["name"]: one["max_version"] for one in answer["supported_features"]}
        assert version == 3 or supported["transaction.version"] == 2
        finalized = {one["name"]: one["max_version_level"] for one in answer["finalized_features"]}
        assert finalized["transaction.version"] == 2


# In Kafka an admin client may produce to internal topics, and anyone may delete them.
@EMBEDDED_ONLY
def test_internal_topics_are_shown_as_such_and_only_read(client: ProtocolClient, transactions: Transactions) -> None:
    transactions.begin()
    name = "__transaction_state"
    [found] = client.call(METADATA, 12, {"topics": [{"name": name}]})["topics"]
    assert (found["is_internal"], len(found["partitions"])) == (True, 1)
    records = bytes(encode_batch([BatchRecord(1000, b"k", b"v")]))
    data = {"name": name, "partition_data": [{"index": 0, "records": records}]}
    answer = client.call(PRODUCE, 11, {"acks": -1, "timeout": 5000, "topic_data": [data]})
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.invalid_topic_exception
    assert len(fetch(client, name, 0)["records"]) > 0


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(INIT_PRODUCER_ID))
def test_idempotent_producers_get_new_ids_in_every_version(client: ProtocolClient, version: int) -> None:
    body: Message = {"transactional_id": None, "transaction_timeout": 1000}
    first, second = (client.call(INIT_PRODUCER_ID, version, body) for _ in range(2))
    assert first["error_code"] == second["error_code"] == ErrorCode.none
    assert 0 <= first["producer_id"] < second["producer_id"]
