"""The protocol of versioned stores, its implementations and return codes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from penstock.state import versioned_api as api
from penstock.state.read_only import ReadOnlyVersionedView
from penstock.state.versioned_store import TypedVersionedKeyValueStore
from tests.support.protocols import differences


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [
        (api.EngineVersionedKeyValueStore, TypedVersionedKeyValueStore),
        (api.VersionedKeyValueStore, ReadOnlyVersionedView),
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_class_has_the_methods_of_its_protocol(protocol: type, implementation: type) -> None:
    assert differences(protocol, implementation) == []


def test_return_codes_are_those_of_kafka_and_no_time() -> None:
    assert (api.PUT_RETURN_CODE_VALID_TO_UNDEFINED, api.PUT_RETURN_CODE_NOT_PUT) == (-1, -9_223_372_036_854_775_808)


def test_a_version_is_a_value() -> None:
    version = api.VersionedRecord("x", 5)
    assert version == api.VersionedRecord("x", 5, None) != api.VersionedRecord("x", 5, 6)
    with pytest.raises(FrozenInstanceError):
        version.timestamp = 6  # type: ignore[misc]  # what is to be refused
