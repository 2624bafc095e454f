"""Stores that users write: what they are made by, what they are given, and how a task keeps one (Kafka classes:
StateStore, StateStoreContext, StoreBuilder).

Rules for such a store:
- `init` comes first. There it calls `StateStoreContext.register` with its restore function; after `init` that function
  receives all entries of the last commit in one call. The store must then hold exactly these and discard anything that
  it kept elsewhere from before.
- Every write that must survive a crash goes to `StateStoreContext.log_change`, immediately or in `flush`, which comes
  before each commit. The entries are any bytes; the last one of a key counts.
- Each task has its own store of a name, and several tasks run in one process or on one machine: what a store keeps in
  files has `StateStoreContext.task_id` in its path.
- On Spark a store lives for one epoch, and is restored at the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from penstock.config import StreamsConfig
from penstock.record import NO_TIMESTAMP, Headers, Int64Array
from penstock.serdes import Serde, Serdes
from penstock.state.api import CUSTOM, BaseView, BufferedBytesStore, FlushListener, StateStore
from penstock.state.change_logging_store import ChangeLoggingStore, StoreChangeLog
from penstock.state.uncommitted import UncommittedStore

Restore = Callable[[Iterable[tuple[bytes, bytes]]], None]
"""Takes all entries of the last commit, in key order."""


class StateStoreContext:
    """What a store of a user may ask of its task (Kafka class: StateStoreContext)."""

    def __init__(self, name: str, config: StreamsConfig, buffer: BufferedBytesStore, task_id: str = "") -> None:
        """Serve the store `name` of a task; its changes go to `buffer`."""
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
        """The id of the task, such as "0_1"; empty outside tasks, as in tests of a processor alone."""
        return self._task_id

    @property
    def changelog_topic(self) -> str:
        """The name of the store's changelog topic, which serdes receive."""
        return f"{self.application_id}-{self._name}-changelog"

    @property
    def key_serde(self) -> Serde | None:
        """`default.key.serde`, None if not set."""
        serde: Serde | None = self._config["default.key.serde"]
        return serde

    @property
    def value_serde(self) -> Serde | None:
        """`default.value.serde`, None if not set."""
        serde: Serde | None = self._config["default.value.serde"]
        return serde

    def config(self, key: str) -> Any:
        """Return the value of the configuration `key`, its default if it is not set."""
        return self._config[key]

    def register(self, restore: Restore) -> None:
        """Have `restore` called after `init` with all entries of the last commit."""
        self.restore = restore

    def log_change(self, key: bytes, value: bytes | None) -> None:
        """Note a change that the next commit makes durable; None for a delete."""
        self._buffer.put(key, value)


@runtime_checkable
class CustomStateStore(StateStore, Protocol):
    """A store that a user writes, with any methods besides."""

    def init(self, context: StateStoreContext) -> None:
        """Prepare the store for use; comes before anything else."""
        ...


class CustomStoreSupplier(ABC):
    """Makes the stores of a user's own kind, for `StoreBuilder(supplier)`; has to be picklable."""

    kind = CUSTOM
    in_memory = None

    def __init__(self, name: str) -> None:
        """Take the name of the store."""
        self.name = name

    @abstractmethod
    def get(self) -> CustomStateStore:
        """Return a new store; called once a task."""
        raise NotImplementedError


class CustomStore:
    """A store of a user as tasks see it (implements EngineStore)."""

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
        """Create the store of a task and restore it from `view`, its committed entries; `log` receives its changes.
        Raises TypeError if what the supplier makes is no store."""
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
        """The serde of the keys of changes: they are bytes."""
        return Serdes.bytes()

    def exposed(self) -> StateStore:
        """Return the user's own object, which processors get."""
        return self._store

    def is_open(self) -> bool:
        """Return whether the store can be used."""
        return self._store.is_open()

    def persistent(self) -> bool:
        """Return whether the user says that the store outlives the process."""
        return self._store.persistent()

    def flush(self) -> None:
        """Have the store tell what it changed."""
        self._store.flush()

    def close(self) -> None:
        """Close the store; uncommitted writes are discarded."""
        self._store.close()
        self._buffer.clear()

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Do nothing: there is no record cache."""

    def uncommitted_bytes(self) -> int:
        """Return about how many bytes of memory the changes since the last commit take."""
        return self._buffer.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the changes since the last commit, in key order, None for a delete."""
        return self._buffer.changes()

    def clear_changes(self) -> None:
        """Forget the changes: the base has them now."""
        self._buffer.clear()

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the entries that changelog records stand for; the next store that is made of the supplier gets them."""
        self._buffer.put_many(keys, values)

    def deserialize_keys(self, keys: list[bytes], headers: Sequence[Headers] | None = None) -> list[Any]:
        """Return `keys` as they are: what they stand for only the user knows."""
        return list(keys)

    def deserialize_columns(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Return `values` as they are, without timestamps."""
        return list(values), np.full(len(values), NO_TIMESTAMP, np.int64)
