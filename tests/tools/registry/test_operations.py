"""Ids and versions over any sequence of requests, restarts and compactions."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.tools.registry.operations import LEVEL, Registry
from penstock.tools.registry.schemas import RefusedRequestError, Schema
from penstock.tools.registry.server import serving
from penstock.tools.registry.subjects import Subjects
from penstock.tools.registry.topic import NAME, Key, SchemasTopic
from penstock_broker.common.clock import MockClock
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import BrokerError
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.records import LogRecord, encode_records
from penstock_broker.topics import TopicRegistry

_MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

SUBJECTS: Final = ("a", "b")
TEXTS: Final = tuple(json.dumps({"type": "fixed", "name": "F", "size": size}) for size in range(1, 5))


@contextmanager
def opened(directory: Path) -> Iterator[tuple[Registry, TopicRegistry]]:
    store = MetadataStore(directory / "metadata.sqlite")
    topics = TopicRegistry(BrokerConfig(data_dir=directory), store, MockClock())
    try:
        yield Registry(SchemasTopic(topics, MockClock())), topics
    finally:
        topics.close()
        store.close()


def snapshot(state: Subjects) -> Any:
    every = [version for name in state.names(deleted=True) for version in state.versions(name, deleted=True)]
    return every, state.last_id, state.settings


def compacted(topics: TopicRegistry) -> Subjects:
    """Return the state that compaction would leave."""
    kept: dict[Key, bytes | None] = {}
    for key, value in SchemasTopic(topics, MockClock()).news():
        kept.pop(key, None)
        kept[key] = value
    state = Subjects()
    for key, value in kept.items():
        if value is not None:
            state.apply(key, value)
    return state


REQUESTS: Final = st.one_of(
    st.tuples(st.just("register"), st.sampled_from(SUBJECTS), st.sampled_from(TEXTS)),
    st.tuples(st.sampled_from(["delete", "purge"]), st.sampled_from(SUBJECTS), st.none()),
    st.tuples(st.sampled_from(["delete one", "purge one"]), st.sampled_from(SUBJECTS), st.integers(1, 4)),
    st.tuples(st.just("restart"), st.none(), st.none()),
)


async def execute(registry: Registry, what: str, subject: str, argument: Any) -> tuple[int, str] | None:
    if what == "register":
        return (await registry.register(subject, Schema(schema=argument))).id, argument
    if what.endswith("one"):
        await registry.delete_version(subject, argument, what.startswith("purge"))
    else:
        await registry.delete_subject(subject, what == "purge")
    return None


@settings(max_examples=25)
@given(st.lists(REQUESTS, max_size=25))
def test_an_id_never_gets_another_schema_and_survives_restarts_and_compaction(requests: list[Any]) -> None:
    given_ids: dict[int, str] = {}
    refusals: set[int] = set()
    with tempfile.TemporaryDirectory(dir=_MEMORY) as directory:
        parts: list[list[Any]] = [[]]
        for request in requests:
            if request[0] == "restart":
                parts.append([])
            else:
                parts[-1].append(request)
        before: Any = None
        for part in parts:
            with opened(Path(directory)) as (registry, topics):
                if before is None:
                    asyncio.run(registry.set(LEVEL, None, "NONE"))
                else:
                    assert snapshot(registry.state()) == before
                for request in part:
                    try:
                        got = asyncio.run(execute(registry, *request))
                    except RefusedRequestError as error:
                        refusals.add(error.status)
                        continue
                    if got is not None:
                        assert given_ids.setdefault(*got) == got[1]
                before = snapshot(registry.state())
                assert snapshot(compacted(topics)) == before
        assert refusals <= {404}
        versions = before[0]
        for version in versions:
            assert given_ids[version.id] == version.schema
        assert len({version.schema for version in versions}) == len({version.id for version in versions})


def test_records_of_confluents_registry_are_understood_and_others_left_out(tmp_path: Path) -> None:
    def records(*pairs: tuple[bytes, bytes | None]) -> memoryview:
        return memoryview(encode_records([LogRecord(at, 0, key, value) for at, (key, value) in enumerate(pairs)]))

    def schema(version: int) -> tuple[bytes, bytes]:
        key = {"keytype": "SCHEMA", "subject": "s", "version": version, "magic": 1}
        value = {
            "subject": "s",
            "version": version,
            "id": version,
            "md5": "x",
            "schema": TEXTS[version],
            "deleted": False,
        }
        return json.dumps(key).encode(), json.dumps(value).encode()

    with opened(tmp_path) as (registry, topics):
        log = topics.by_name(NAME).partitions[0]
        log.append_own(records(schema(1), schema(2), (b'{"keytype":"NOOP","magic":0}', None), (b"what?", b"{}")))
        assert [version.id for version in registry.versions("s")] == [1, 2]
        log.append_own(
            records(
                (b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"subject":"s","version":1}'),
                (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"subject":null,"compatibilityLevel":"FULL"}'),
                (b'{"keytype":"SCHEMA","subject":"s","version":9,"magic":1}', b"what?"),
            )
        )
        assert [version.version for version in registry.versions("s")] == [2]
        assert registry.setting(LEVEL, "s") == "FULL"
        topics.delete(topics.by_name(NAME))
        with pytest.raises(RefusedRequestError, match="_schemas was deleted"):
            registry.versions("s")


def test_the_records_are_those_of_confluents_registry(tmp_path: Path) -> None:
    with opened(tmp_path) as (registry, topics):
        asyncio.run(registry.register("s", Schema(schema=TEXTS[0])))
        found = list(SchemasTopic(topics, MockClock()).news())
    assert found[0][0] == Key("SCHEMA", "s", 1)
    assert json.loads(found[0][1] or b"") == {
        "subject": "s",
        "version": 1,
        "id": 1,
        "schema": TEXTS[0],
        "deleted": False,
    }


def test_a_topic_of_another_shape_is_refused(tmp_path: Path) -> None:
    store = MetadataStore(tmp_path / "metadata.sqlite")
    topics = TopicRegistry(BrokerConfig(data_dir=tmp_path), store, MockClock())
    topics.create(NAME, 2, {})
    with pytest.raises(BrokerError, match=r"_schemas has 2 partitions and cleanup\.policy=delete"):
        SchemasTopic(topics, MockClock())
    topics.close()
    store.close()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async def serve(topics: TopicRegistry, port: int) -> None:
        async with serving(topics, MockClock(), "127.0.0.1", port):
            pass

    with opened(tmp_path) as (_, topics), socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .* choose another port"):
            asyncio.run(serve(topics, port))


def test_a_change_that_cannot_be_written_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as (registry, topics):

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("penstock_broker.log.Log.append", full)
            with pytest.raises(RefusedRequestError, match="No space left"):
                asyncio.run(registry.register("s", Schema(schema=TEXTS[0])))
        assert registry.state().names() == []
        assert asyncio.run(registry.register("s", Schema(schema=TEXTS[1]))).id == 1
        assert topics.by_name(NAME).configs["flush.messages"] == "1"
