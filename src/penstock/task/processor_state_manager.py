"""The stores of one task, flushed and committed together (Kafka class: ProcessorStateManager)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from penstock.errors import ProcessorStateError, StreamsError
from penstock.metrics.host_metrics import NUM_KEYS, operation_of, state_id
from penstock.metrics.measurements import Measurement, measured_once
from penstock.plan.subtopology import SubtopologySpec
from penstock.state.api import Base, Changes, EngineStore
from penstock.state.build import COUNTED_SCOPES, StoreServices, build_store, scope_of
from penstock.state.change_logging_store import ChangeLog
from penstock.state.record_cache import RecordCache
from penstock.state.spilled import SpilledChanges
from penstock.state.typed_store import TypedStore
from penstock.task.context import TaskContext
from penstock.task.error_handling import ProcessingError, told_cause
from penstock.task.store_expiry import StoreExpiry


class ProcessorStateManager:
    """Builds the stores of a sub-topology and collects their changes.

    Args:
        spec: the sub-topology.
        log_prefix: prefix of error texts that identifies the owner of the stores.
        context: the context of the task.
        base: the committed state.
        cache: the record cache for cached stores.
        change_log: collects the changelog records of the stores that it names.
        spilled: receives the uncommitted changes that exceed memory; None keeps them there.
        sweep_cursors: where the sweeps of stores with a time to live continue.

    Attributes:
        expiry: the sweeps of these stores.
    """

    def __init__(
        self,
        spec: SubtopologySpec,
        log_prefix: str,
        context: TaskContext,
        base: Base,
        cache: RecordCache,
        change_log: ChangeLog | None = None,
        spilled: SpilledChanges | None = None,
        sweep_cursors: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        config = context.config
        self._log_prefix = log_prefix
        self._base = base
        self._cache = cache
        self._spilled = spilled
        self._most_uncommitted: int = config["penstock.uncommitted.max.bytes"]
        self.expiry = StoreExpiry(context, sweep_cursors)
        view = base.view if spilled is None else spilled.view
        self.stores: dict[str, EngineStore] = {
            name: build_store(
                builder,
                config,
                view(name),
                cache,
                context.record_context,
                context.processor_metadata,
                StoreServices(
                    partial(context.count_late, name), change_log, context.observer, context.task_id, self.expiry
                ),
            )
            for name, builder in spec.stores.items()
        }
        scopes = {name: scope_of(builder, config) for name, builder in spec.stores.items()}
        self._counted = {
            operation_of(NUM_KEYS, state_id(scopes[name]), name): store
            for name, store in self.stores.items()
            if isinstance(store, TypedStore) and scopes[name] in COUNTED_SCOPES
        }

    def num_keys(self) -> dict[str, Measurement]:
        """Return the number of keys of each store in memory, by operation (KIP-1250)."""
        return {operation: measured_once(store.num_keys()) for operation, store in self._counted.items()}

    def flush_caches(self) -> None:
        """Flush the cache of every store, in the order of the stores.

        Raises ProcessorStateError with the store's name if the forwarding fails, and a StreamsError without a handler
        call unchanged.
        """
        for name, store in self.stores.items():
            try:
                store.flush()
            except StreamsError:
                raise
            except Exception as error:
                failed = error.error if isinstance(error, ProcessingError) else error
                failure = ProcessorStateError(f"{self._log_prefix}Failed to flush cache of store {name}")
                if isinstance(error, ProcessingError):
                    failure.add_note(f"Processor {error.node} failed on an update that the cache forwarded to it.")
                failure.add_note(told_cause(failed, name, name))
                raise failure from failed

    def evict(self) -> None:
        """Evict from the record cache down to its bound, after a batch put without eviction.

        Afterwards spill the uncommitted changes if they exceed their bound.
        """
        self._cache.evict()
        if self._spilled is not None and self.uncommitted_bytes() > self._most_uncommitted:
            self._spilled.spill(self.changes())
            for store in self.stores.values():
                store.clear_changes()

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of all stores' uncommitted changes."""
        return sum(store.uncommitted_bytes() for store in self.stores.values())

    def changes(self) -> Changes:
        """Return the changes of all stores since the last commit; unchanged stores are omitted."""
        changed = {name: store.changes() for name, store in self.stores.items()}
        return {name: changes for name, changes in changed.items() if changes}

    def committed(self, changes: Changes, stamp: bytes) -> None:
        """Apply `changes` to the base with `stamp` and forget them."""
        self._base.apply(changes, stamp)
        for store in self.stores.values():
            store.clear_changes()

    def close(self) -> None:
        """Close the stores; uncommitted changes are lost.

        The base stays open, since it belongs to the host.
        """
        for store in self.stores.values():
            store.close()
