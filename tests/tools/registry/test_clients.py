"""The schema registry of the broker, asked by confluent-kafka's own client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from penstock.testing import EmbeddedBroker
from penstock_broker.errors import BrokerError
from penstock_broker.process import BrokerProcess


def record(**fields: Any) -> str:
    """Return the Avro schema of a record whose fields are strings; a value is a default, None for none."""
    described = [
        {"name": name, "type": "string", **({} if default is None else {"default": default})}
        for name, default in fields.items()
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": described})


FIRST, WITH_DEFAULT, WITHOUT_DEFAULT = record(id=None), record(id=None, note=""), record(id=None, note=None)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(schema_registry_port=0) as started:
        yield started


@pytest.fixture
def client(broker: EmbeddedBroker) -> SchemaRegistryClient:
    return asking(broker)


def asking(broker: BrokerProcess) -> SchemaRegistryClient:
    """Return a client that remembers nothing yet."""
    return SchemaRegistryClient({"url": broker.schema_registry_url, "max.retries": 0})


def refused(call: Callable[[], Any]) -> tuple[int, int, str]:
    with pytest.raises(SchemaRegistryError) as caught:
        call()
    return caught.value.http_status_code, caught.value.error_code, caught.value.error_message


def test_a_schema_gets_an_id_and_a_version_and_is_found_by_both(
    broker: EmbeddedBroker, client: SchemaRegistryClient
) -> None:
    id = client.register_schema("found-value", Schema(FIRST))
    second = client.register_schema("found-value", Schema(WITH_DEFAULT))
    other = asking(broker)
    assert other.get_schema(id, "found-value").schema_str == FIRST
    assert (found := other.lookup_schema("found-value", Schema(FIRST))).version == 1
    assert (found.schema_id, found.subject) == (id, "found-value")
    latest = other.get_latest_version("found-value")
    assert (latest.schema_id, latest.version, latest.schema.schema_str) == (second, 2, WITH_DEFAULT)
    assert other.get_versions("found-value") == [1, 2]
    assert "found-value" in other.get_subjects(subject_prefix="found")
    assert [(each.subject, each.version) for each in other.get_schema_versions(second)] == [("found-value", 2)]
    assert other.get_schema_by_guid(str(latest.guid)).schema_str == WITH_DEFAULT


def test_the_same_schema_has_one_id_in_all_subjects_however_it_is_written(client: SchemaRegistryClient) -> None:
    id = client.register_schema("same-value", Schema(FIRST))
    written_otherwise = json.dumps(dict(reversed(json.loads(FIRST).items())), indent=2)
    assert client.register_schema("same-value", Schema(written_otherwise)) == id
    assert client.register_schema("another/same value", Schema(FIRST)) == id
    assert client.get_versions("same-value") == [1]
    assert set(client.get_subjects_by_schema_id(id)) >= {"same-value", "another/same value"}


@pytest.mark.parametrize(
    ("level", "old", "new", "is_compatible"),
    [
        ("BACKWARD", FIRST, WITH_DEFAULT, True),
        ("BACKWARD", FIRST, WITHOUT_DEFAULT, False),
        ("BACKWARD", WITHOUT_DEFAULT, FIRST, True),
        ("FORWARD", WITHOUT_DEFAULT, FIRST, False),
        ("FORWARD", FIRST, WITHOUT_DEFAULT, True),
        ("FULL", FIRST, WITH_DEFAULT, True),
        ("FULL", FIRST, WITHOUT_DEFAULT, False),
        ("NONE", FIRST, WITHOUT_DEFAULT, True),
    ],
)
def test_a_schema_that_breaks_the_level_of_its_subject_is_refused(
    client: SchemaRegistryClient, level: Any, old: str, new: str, is_compatible: bool
) -> None:
    subject = f"{level}-{hash((old, new))}"
    client.set_compatibility(subject, level)
    client.register_schema(subject, Schema(old))
    assert client.test_compatibility(subject, Schema(new)) is is_compatible
    if is_compatible:
        client.register_schema(subject, Schema(new))
        assert client.get_versions(subject) == [1, 2]
    else:
        status, code, message = refused(lambda: client.register_schema(subject, Schema(new)))
        assert (status, code) == (409, 409)
        assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
        assert "note" in message
        assert client.get_versions(subject) == [1]


def test_a_transitive_level_compares_all_versions(client: SchemaRegistryClient) -> None:
    versions = (WITHOUT_DEFAULT, FIRST)
    newest = json.dumps(
        {**json.loads(FIRST), "fields": [*json.loads(FIRST)["fields"], {"name": "note", "type": "int"}]}
    )
    newest = newest.replace('"int"', '"int", "default": 0')
    for each in versions:
        client.register_schema("all", Schema(each))
    assert client.test_compatibility("all", Schema(newest))
    client.set_compatibility("all", "BACKWARD_TRANSITIVE")
    assert not client.test_compatibility_all_versions("all", Schema(newest))
    assert refused(lambda: client.register_schema("all", Schema(newest)))[0] == 409


def test_json_and_protobuf_are_kept_but_only_compared_as_a_whole(client: SchemaRegistryClient) -> None:
    old, new = Schema('{"type": "object"}', "JSON"), Schema('{"type": "object", "required": ["id"]}', "JSON")
    id = client.register_schema("json", old)
    assert client.register_schema("json", Schema('{ "type":"object" }', "JSON")) == id
    status, _, message = refused(lambda: client.register_schema("json", new))
    assert status == 409
    assert "type AVRO only" in message
    assert "NONE" in message
    client.set_compatibility("json", "NONE")
    assert client.register_schema("json", new) > id
    client.register_schema("proto", Schema('syntax = "proto3"; message M {}', "PROTOBUF"))
    assert client.get_latest_version("proto").schema.schema_type == "PROTOBUF"


def test_references_are_resolved_and_hold_what_they_refer_to(client: SchemaRegistryClient) -> None:
    owner = '{"type": "record", "name": "Owner", "fields": [{"name": "owned", "type": "Order"}]}'
    client.register_schema("order", Schema(FIRST))
    assert refused(lambda: client.register_schema("owner", Schema(owner)))[1] == 42201
    missing = Schema(owner, references=[SchemaReference("Order", "order", 7)])
    assert "version 7 of subject 'order'" in refused(lambda: client.register_schema("owner", missing))[2]
    reference = SchemaReference("Order", "order", 1)
    id = client.register_schema("owner", Schema(owner, references=[reference]))
    assert client.get_latest_version("owner").schema.references == [reference]
    assert client.get_referenced_by("order", 1) == [id]
    assert refused(lambda: client.delete_subject("order"))[1] == 42206


def test_a_deleted_version_keeps_its_id_until_it_is_deleted_for_good(
    broker: EmbeddedBroker, client: SchemaRegistryClient
) -> None:
    first = client.register_schema("gone", Schema(record(gone=None)))
    second = client.register_schema("gone", Schema(record(gone=None, more="")))
    assert refused(lambda: client.delete_version("gone", 1, permanent=True))[1] == 40407
    assert client.delete_version("gone", 1) == 1
    assert refused(lambda: client.delete_version("gone", 1))[1] == 40406
    assert (client.get_versions("gone"), client.get_versions("gone", deleted=True)) == ([2], [1, 2])
    assert asking(broker).get_schema(first).schema_str == record(gone=None)
    assert client.delete_subject("gone") == [2]
    assert refused(lambda: client.get_versions("gone"))[1] == 40401
    assert asking(broker).register_schema("gone", Schema(record(gone=None))) == first
    client.delete_subject("gone")
    assert client.delete_subject("gone", permanent=True) == [1, 2, 3]
    for id in (first, second):
        assert refused(partial(asking(broker).get_schema, id))[1] == 40403
    assert asking(broker).register_schema("gone", Schema(record(gone=None))) > second


def test_what_does_not_exist_or_cannot_be_has_the_code_of_confluent(client: SchemaRegistryClient) -> None:
    client.register_schema("codes", Schema(FIRST))
    assert refused(lambda: client.get_latest_version("nothing"))[:2] == (404, 40401)
    assert refused(lambda: client.get_version("codes", 5))[:2] == (404, 40402)
    assert refused(lambda: client.get_schema(999_999))[:2] == (404, 40403)
    assert refused(lambda: client.lookup_schema("codes", Schema(WITHOUT_DEFAULT)))[:2] == (404, 40403)
    assert refused(lambda: client.register_schema("codes", Schema('{"type": "what"}')))[:2] == (422, 42201)
    assert refused(lambda: client.register_schema("codes", Schema("[" * 100_000)))[:2] == (422, 42201)
    assert refused(lambda: client.get_version("codes", 0))[:2] == (422, 42202)
    assert refused(lambda: client.set_compatibility("codes", "SIDEWAYS"))[:2] == (422, 42203)
    assert refused(lambda: client.get_compatibility("codes"))[:2] == (404, 40408)
    client.update_mode("codes", "READONLY")
    assert refused(lambda: client.register_schema("codes", Schema(WITH_DEFAULT)))[:2] == (422, 42205)
    assert client.delete_mode("codes") == "READONLY"
    assert client.get_global_mode() == "READWRITE"


def test_all_is_there_after_a_kill(broker: EmbeddedBroker, client: SchemaRegistryClient) -> None:
    url = broker.schema_registry_url
    ids = [client.register_schema(f"kept-{at}", Schema(record(**{f"kept{at}": None}))) for at in range(3)]
    client.set_compatibility("kept-0", "FULL")
    client.delete_subject("kept-2")
    client.delete_subject("kept-2", permanent=True)
    broker.restart()
    assert broker.schema_registry_url == url
    after = asking(broker)
    assert [after.get_latest_version(f"kept-{at}").schema_id for at in (0, 1)] == ids[:2]
    assert after.get_compatibility("kept-0") == "FULL"
    assert refused(lambda: after.get_schema(ids[2]))[1] == 40403
    assert after.register_schema("kept-3", Schema(record(kept3=None))) == ids[2] + 1


def test_a_broker_without_a_registry_has_no_url(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="was not asked for a schema registry"):
        _ = BrokerProcess(tmp_path).schema_registry_url
