"""Versioned stores against a plain model, over commits and restarts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.stores import Stores
from penstock.state.versioned_api import PUT_RETURN_CODE_NOT_PUT, PUT_RETURN_CODE_VALID_TO_UNDEFINED, VersionedRecord
from tests.support.stores import STRING, TaskStore

KEYS = ("a", "a\0", "ab")


class Versions:
    """Versions by key and time; None if the value ends."""

    def __init__(self, history: int) -> None:
        self.history = history
        self.clock = -1
        self.known: dict[str, dict[int, str | None]] = {key: {} for key in KEYS}

    def put(self, key: str, value: str | None, time: int) -> int:
        """Put a version; return until when it is valid."""
        if time < self.clock - self.history:
            return PUT_RETURN_CODE_NOT_PUT
        self.clock = max(self.clock, time)
        self.known[key][time] = value
        return min((other for other in self.known[key] if other > time), default=PUT_RETURN_CODE_VALID_TO_UNDEFINED)

    def get(self, key: str, as_of: int | None = None) -> VersionedRecord | None:
        """Return the latest version, or that of a time."""
        known = self.known[key]
        if not known:
            return None
        latest = max(known)
        found = max((time for time in known if as_of is None or time <= as_of), default=None)
        if found is None or (as_of is not None and as_of < self.clock - self.history and found != latest):
            return None
        value = known[found]
        return None if value is None else VersionedRecord(value, found)


TIMES = st.integers(0, 60)


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from(KEYS), TIMES, st.none() | st.sampled_from("xyz"))
        | st.tuples(st.just("restart")),
        max_size=30,
    ),
    st.sampled_from([0, 1, 10, 30]),
    st.sampled_from([1, 7, None]),
)
def test_a_versioned_store_knows_what_was_valid_when(steps: list[Any], history: int, interval: int | None) -> None:
    supplier = Stores.persistent_versioned_key_value_store("v", history, interval)
    task, model = TaskStore(Stores.versioned_key_value_store_builder(supplier, STRING, STRING)), Versions(history)
    for step in steps:
        match step:
            case ("restart",):
                task.commit()
                task.restart()
            case (_, key, time, None) if time in model.known[key]:
                continue  # a value that ends when it begins: what is known of that depends on what was before it
            case ("put", key, time, value):
                assert task.store.put(key, value, time) == model.put(key, value, time)
            case ("delete", key, time, _):
                if time in model.known[key]:
                    continue
                before = None if time < model.clock - history else model.get(key, time)
                assert task.store.delete(key, time) == before
                model.put(key, None, time)
        for key in KEYS:
            assert task.store.get(key) == model.get(key)
    versions = list(task.store.all_versions())
    for key in KEYS:
        for as_of in range(0, 61, 3):
            assert task.store.get(key, as_of) == model.get(key, as_of)
            if as_of >= task.store.oldest_known:
                valid = [each for of, each in versions if of == key and _is_valid(each, as_of)]
                assert [VersionedRecord(each.value, each.timestamp) for each in valid] == [
                    each for each in [model.get(key, as_of)] if each is not None
                ]


def _is_valid(version: VersionedRecord, time: int) -> bool:
    return version.timestamp <= time and (version.valid_to is None or time < version.valid_to)


def test_a_version_that_comes_too_late_is_dropped() -> None:
    supplier = Stores.persistent_versioned_key_value_store("v", 10)
    task = TaskStore(Stores.versioned_key_value_store_builder(supplier, STRING, STRING))
    task.store.put("a", "1", 100)
    assert task.store.put("a", "0", 89) == PUT_RETURN_CODE_NOT_PUT
    assert task.dropped == 1
    assert task.store.delete("a", 89) is None
    assert task.dropped == 2
    assert task.store.put("a", "0", 90) == 100


def test_old_versions_are_removed_from_the_base() -> None:
    supplier = Stores.persistent_versioned_key_value_store("v", 10, 5)
    task = TaskStore(Stores.versioned_key_value_store_builder(supplier, STRING, STRING))
    for time in range(50):
        task.store.put("a", str(time), time)
    task.commit()
    task.restart()
    assert task.base.view("v").approximate_num_entries() < 20
    assert task.store.get("a", 40) == VersionedRecord("40", 40)
    assert task.store.get("a", 38) is None
