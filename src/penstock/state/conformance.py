"""Conformance tests for user-defined key-value stores.

    def test_my_store(tmp_path):
        check_key_value_store(lambda: MyStoreSupplier("s", tmp_path / "s.db"))

The store must accept str keys and str values, in any representation. Each failed check raises AssertionError with the
expectation. Commits, crashes and restarts are simulated as a task would perform them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import InvalidStateStoreError
from penstock.serdes import Serdes
from penstock.state.custom import CustomStore, CustomStoreSupplier
from penstock.state.memory import MemoryBase

_KEYS = ("", "a", "a\0", "aa", "ab", "b", "ba", "é", "\U0001f600")
_ROUNDS = 40
_STEPS_PER_ROUND = 12


def check_key_value_store(make_supplier: Callable[[], CustomStoreSupplier]) -> None:
    """Check the stores of `make_supplier()`: a KeyValueStore of str keys and values, restored after a crash.

    After a crash a store must have its committed entries. Raises AssertionError.
    """
    _Check(make_supplier).run()


class _Check:
    """A store, a dict of its expected entries, and a dict of the committed ones."""

    def __init__(self, make_supplier: Callable[[], CustomStoreSupplier]) -> None:
        self._make_supplier = make_supplier
        self._base = MemoryBase()
        self._committed: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._commits = 0
        self._open()
        self._neighbour = self._made("0_1", MemoryBase())
        self._of_neighbour: dict[str, str] = {}

    def _open(self) -> None:
        self._task = self._made("0_0", self._base)
        self._store: Any = self._task.exposed()
        _expect(self._store.is_open(), "is_open() to be true after init")
        _expect(self._store.name == self._task.name, f"the name {self._task.name!r}, not {self._store.name!r}")
        _expect(isinstance(self._store.persistent(), bool), "persistent() to be True or False")
        self._held = dict(self._committed)
        self._compare("after it was restored")

    def _made(self, task: str, base: MemoryBase) -> CustomStore:
        supplier = self._make_supplier()
        config = StreamsConfig({"application.id": "conformance"}, environment={})
        return CustomStore(supplier, config, base.view(supplier.name), task_id=task)

    def run(self) -> None:
        """Run all checks."""
        chance = random.Random(7)
        for round_ in range(_ROUNDS):
            for _ in range(_STEPS_PER_ROUND):
                self._step(chance)
            self._write_beside(f"v{round_}")
            self._compare(f"in round {round_}")
            ending = chance.choice((self._commit, self._commit, self._crash, self._restart))
            ending()
        self._check_refusals()
        self._neighbour.close()
        self._task.close()
        _expect(not self._store.is_open(), "is_open() to be false after close")
        self._refuses(InvalidStateStoreError, lambda: self._store.get("a"), "get after close")

    # ---------- simulation of a task

    def _commit(self) -> None:
        self._task.flush()
        self._commits += 1
        self._base.apply({self._task.name: self._task.changes()}, b"%d" % self._commits)
        self._task.clear_changes()
        self._committed = dict(self._held)

    def _crash(self) -> None:
        """Lose uncommitted writes and everything in the store's memory."""
        self._task.close()
        self._open()

    def _restart(self) -> None:
        self._commit()
        self._crash()

    def _write_beside(self, value: str) -> None:
        """Write to another task's store in this process; it neither waits nor shares entries."""
        store: Any = self._neighbour.exposed()
        try:
            store.put("b", value)
            store.put(value, value)
        except Exception as error:
            raise AssertionError(
                "expected the stores of two tasks in one process not to disturb one another, but one raised "
                f"{error!r}: give each its own files, with context.task_id in their path"
            ) from error
        self._of_neighbour |= {"b": value, value: value}
        _equal(sorted(_all(store.all())), sorted(self._of_neighbour.items()), "all() of the store of another task")

    # ---------- simulation of a processor

    def _step(self, chance: random.Random) -> None:
        key, value, held = chance.choice(_KEYS), f"v{chance.random()}", self._held
        match chance.randrange(5):
            case 0 | 1:
                self._store.put(key, value)
                held[key] = value
            case 2:
                self._store.put(key, None)
                held.pop(key, None)
            case 3:
                _equal(self._store.put_if_absent(key, value), held.get(key), f"put_if_absent({key!r})")
                held.setdefault(key, value)
            case _:
                _equal(self._store.delete(key), held.pop(key, None), f"delete({key!r})")

    def _compare(self, when: str) -> None:
        held, store = self._held, self._store
        for key in _KEYS:
            _equal(store.get(key), held.get(key), f"get({key!r}) {when}")
        ordered = sorted(held.items(), key=lambda entry: entry[0].encode())
        _equal(_all(store.all()), ordered, f"all() {when}")
        _equal(_all(store.reverse_all()), ordered[::-1], f"reverse_all() {when}")
        for low, high in (("a", "b"), (None, "aa"), ("aa", None), ("b", "a"), ("ab", "ab")):
            within = [
                (key, value)
                for key, value in ordered
                if (low is None or key.encode() >= low.encode()) and (high is None or key.encode() <= high.encode())
            ]
            _equal(_all(store.range(low, high)), within, f"range({low!r}, {high!r}) {when}")
            _equal(_all(store.reverse_range(low, high)), within[::-1], f"reverse_range({low!r}, {high!r}) {when}")
        prefixed = [(key, value) for key, value in ordered if key.startswith("a")]
        _equal(_all(store.prefix_scan("a", Serdes.string())), prefixed, f"prefix_scan('a') {when}")
        _expect(isinstance(store.approximate_num_entries(), int), "approximate_num_entries() to be a number")

    def _check_refusals(self) -> None:
        store = self._store
        self._refuses(TypeError, lambda: store.put(None, "v"), "put of a None key")
        self._refuses(TypeError, lambda: store.get(None), "get of a None key")
        store.put_all([("a", "1"), ("b", "2"), ("a", "3")])
        _equal((store.get("a"), store.get("b")), ("3", "2"), "put_all")
        iterator = store.all()
        _equal(iterator.peek_next_key(), next(iter(iterator))[0], "peek_next_key()")
        iterator.close()
        self._refuses(InvalidStateStoreError, lambda: next(iterator), "next() of a closed iterator")

    @staticmethod
    def _refuses(expected: type[Exception], call: Callable[[], Any], what: str) -> None:
        try:
            call()
        except expected:
            return
        except Exception as error:
            raise AssertionError(f"Expected {what} to raise {expected.__name__}, got {error!r}.") from error
        raise AssertionError(f"Expected {what} to raise {expected.__name__}.")


def _all(iterator: Any) -> list[tuple[Any, Any]]:
    with iterator as entries:
        found: Iterator[Any] = iter(entries)
        return [(key, value) for key, value in found]


def _equal(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise AssertionError(f"Expected {what} to return {expected!r}, got {found!r}.")


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(f"Expected {what}.")
