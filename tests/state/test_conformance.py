"""The conformance tests of user-defined stores find faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import pytest

from penstock.state.conformance import check_key_value_store
from penstock.state.custom import StateStoreContext
from tests.support.custom_stores import DictStore, DictStoreSupplier, Entries


def test_a_store_that_keeps_the_rules_passes_the_kit() -> None:
    check_key_value_store(lambda: DictStoreSupplier("s"))


class Forgetful(DictStore):
    """Does not tell deletes."""

    def put(self, key: str, value: str | None) -> None:
        self._check(key)
        if value is None:
            self.content.pop(key, None)
        else:
            super().put(key, value)


class Unregistered(DictStore):
    """Is not restored."""

    def init(self, context: StateStoreContext) -> None:
        super().init(context)
        context.restore = None


class Unordered(DictStore):
    """Does not keep the order of bytes."""

    def all(self) -> Entries:
        return Entries(list(self.content.items()))


class Careless(DictStore):
    """Takes any key."""

    def _check(self, key: str | None) -> None:
        pass


class Shared(DictStore):
    """Keeps the entries of all tasks in one place."""

    place: ClassVar[dict[str, str]] = {}

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        super().restore(entries)
        self.place.clear()
        self.place.update(self.content)
        self.content = self.place


class Stubborn(DictStore):
    """Never closes."""

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Forgetful, "Expected get.* after it was restored"),
        (Unregistered, "after it was restored"),
        (Unordered, r"Expected all\(\)"),
        (Shared, r"Expected all\(\) of the store of another task"),
        (Careless, "put of a None key|get after close"),
        (Stubborn, "is_open"),
    ],
)
def test_the_kit_finds_a_store_that_breaks_a_rule(kind: type, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check_key_value_store(lambda: DictStoreSupplier("s", kind))


def test_a_store_of_which_only_one_can_be_open_is_found_by_the_kit() -> None:
    class Locked(DictStore):
        def put(self, key: str, value: str | None) -> None:
            if self.context.task_id != "0_0":
                raise OSError("locked")
            super().put(key, value)

    with pytest.raises(AssertionError, match=r"not to disturb one another.*locked.*context\.task_id in their path"):
        check_key_value_store(lambda: DictStoreSupplier("s", Locked))
