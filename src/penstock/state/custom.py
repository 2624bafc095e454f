"""User-defined stores: their suppliers, context and life in a task.

Kafka classes: StateStore, StateStoreContext, StoreBuilder.

Rules for such a store:
- `init` is called first. There the store calls `StateStoreContext.register` with its restore function; after `init`,
  that function receives all entries of the last commit in one call. The store must then hold exactly these entries and
  discard older ones that it kept elsewhere.
- Every write that must survive a crash goes to `StateStoreContext.log_change`, immediately or in `flush`, which is
  called before each commit. The entries are arbitrary bytes; the last one of a key wins.
- Each task has its own store of a name, and several tasks share a process or a machine: the path of a store's files
  must include `StateStoreContext.task_id`.
- On Spark, a store lives for one epoch and is restored in the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from penstock.config import StreamsConfig
from penstock.record import NO_TIMESTAMP, Headers, Int64Array
from penstock.serdes import Serde, Serdes
from penstock.state.api import CUSTOM, BaseView, FlushListener, StateStore
from penstock.state.bytes_store import BufferedBytesStore
from penstock.state.change_logging_store import ChangeLoggingStore, StoreChangeLog
from penstock.state.uncommitted import UncommittedStore
from penstock.topic_names import changelog_name

Restore = Callable[[Iterable[tuple[bytes, bytes]]], None]
"""Receives all entries of the last commit, in key order."""


class StateStoreContext:
    """The services of a task to a user-defined store (Kafka class: StateStoreContext).

    Args:
        name: the name of the store.
        config: the configuration.
        buffer: receives the changes.
        task_id: the id of the task.
    """

    def __init__(self, name: str, config: StreamsConfig, buffer: BufferedBytesStore, task_id: str = "") -> None:
        self._name = name
        self._task_id = task_id
        self._config = config
        self._buffer = buffer
        self.restore: Restore | None = None

    @property
    def application_id(self) -> str:
        """`application.id` of the configuration."""
        application_id: str = self._config.required("application.id")
        return application_id

    @property
    def task_id(self) -> str:
        """The id of the task, such as "0_1"; empty outside tasks, as in processor tests."""
        return self._task_id

    @property
    def changelog_topic(self) -> str:
        """The name of the store's changelog topic, which serdes receive."""
        return changelog_name(self.application_id, self._name)

    @property
    def key_serde(self) -> Serde | None:
        """`default.key.serde`, or None if not set."""
        serde: Serde | None = self._config["default.key.serde"]
        return serde

    @property
    def value_serde(self) -> Serde | None:
        """`default.value.serde`, or None if not set."""
        serde: Serde | None = self._config["default.value.serde"]
        return serde

    def config(self, key: str) -> Any:
        """Return the value of the configuration `key`, or its default if not set."""
        return self._config[key]

    def register(self, restore: Restore) -> None:
        """Register `restore`, which receives all entries of the last commit after `init`."""
        self.restore = restore

    def log_change(self, key: bytes, value: bytes | None) -> None:
        """Log a change, which the next commit makes durable; None deletes."""
        self._buffer.put(key, value)


@runtime_checkable
class CustomStateStore(StateStore, Protocol):
    """A user-defined store, which may have any other methods."""

    def init(self, context: StateStoreContext) -> None:
        """Prepare the store for use; called before all other methods."""
        ...


class CustomStoreSupplier(ABC):
    """Creates user-defined stores, for `StoreBuilder(supplier)`; must be picklable.

    Args:
        name: the name of the store.
    """

    kind = CUSTOM
    in_memory = None

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def get(self) -> CustomStateStore:
        """Return a new store; called once per task."""
        raise NotImplementedError


class CustomStore:
    """The tasks' view of a user-defined store (implements EngineStore).

    The constructor creates the store of a task and restores it from `view`.

    Args:
        supplier: creates the store.
        config: the configuration.
        view: the committed entries.
        log: receives the changes.
        task_id: the id of the task.

    Raises:
        TypeError: the supplier does not return a store.
    """

    cached = False
    timestamped = False
    with_headers = False
    uses_headers = False

    def __init__(
        self,
        supplier: CustomStoreSupplier,
        config: StreamsConfig,
        view: BaseView,
        log: StoreChangeLog | None = None,
        task_id: str = "",
    ) -> None:
        self._store = supplier.get()
        self._name = supplier.name
        self.logged = log is not None
        self._buffer: BufferedBytesStore = UncommittedStore(view)
        if log is not None:
            self._buffer = ChangeLoggingStore(self._buffer, log)
        context = StateStoreContext(supplier.name, config, self._buffer, task_id)
        if not isinstance(self._store, CustomStateStore):
            raise TypeError(
                f"{type(supplier).__name__}.get() of store {supplier.name!r} returned {self._store!r:.100}: expected a "
                "new store, with name, init, flush, close, is_open and persistent."
            )
        self._store.init(context)
        if context.restore is not None:
            context.restore(view.range(None, None, False))

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._name

    @property
    def key_serde(self) -> Serde:
        """The serde of the changes' keys, which are bytes."""
        return Serdes.bytes()

    def exposed(self) -> StateStore:
        """Return the user's own object, for processors."""
        return self._store

    def is_open(self) -> bool:
        """Return whether the store can be used."""
        return self._store.is_open()

    def persistent(self) -> bool:
        """Return whether the store outlives the process, according to the user."""
        return self._store.persistent()

    def flush(self) -> None:
        """Flush the store, so that it logs its changes."""
        self._store.flush()

    def close(self) -> None:
        """Close the store; uncommitted writes are discarded."""
        self._store.close()
        self._buffer.clear()

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Do nothing, since the store has no record cache."""

    def set_expiry_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Do nothing, since the store has no time to live."""

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the changes since the last commit."""
        return self._buffer.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the changes since the last commit, in key order; None for a delete."""
        return self._buffer.changes()

    def clear_changes(self) -> None:
        """Forget the changes, which the base now has."""
        self._buffer.clear()

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the entries of changelog records; the supplier's next store receives them."""
        self._buffer.put_many(keys, values)

    def deserialize_keys(self, keys: list[bytes], headers: Sequence[Headers] | None = None) -> list[Any]:
        """Return `keys` unchanged; only the user knows their meaning."""
        return list(keys)

    def deserialize_columns(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Return `values` unchanged, without timestamps."""
        return list(values), np.full(len(values), NO_TIMESTAMP, np.int64)
