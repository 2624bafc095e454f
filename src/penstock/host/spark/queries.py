"""Interactive queries of an application on Spark: answered from its checkpoint, by the driver and by any other process
that reads it.

Which stores there are says the program; what is in them, the manifests and segments (`state_reader`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from penstock.clock import Clock, SystemClock
from penstock.config import StreamsConfig
from penstock.errors import InvalidStateStoreError, InvalidStateStorePartitionError, UnknownStateStoreError
from penstock.host.api import Staleness
from penstock.host.spark.checkpoint import Checkpoint
from penstock.host.spark.state_reader import StateReader
from penstock.plan.subtopology import BuiltTopology
from penstock.state.api import StateStore
from penstock.state.query.queryable import QueryableStoreType, StoreQueryParameters


class CheckpointQueries:
    """Answers queries of one application (implements StateQueries); may be used by several threads."""

    def __init__(
        self,
        built: BuiltTopology,
        config: StreamsConfig,
        checkpoint: Checkpoint | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Answer for the topology `built`, from the checkpoint that `config` names unless one is given; nothing is
        opened before the first query."""
        self._clock = clock or SystemClock()
        self._builders = {name: store for spec in built.subtopologies for name, store in spec.stores.items()}
        checkpoint = checkpoint or Checkpoint(config.checkpoint_directory())
        self._reader = StateReader(self._builders, config, checkpoint, self._clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return the store that is asked for, to be read; raises UnknownStateStoreError if the topology has none of
        that name."""
        self._check_known(parameters.store_name)
        return parameters.queryable_store_type.create(_Provider(self._reader, parameters), parameters.store_name)

    def staleness(self) -> Staleness:
        """Return as of when queries are answered now; raises StateStoreNotAvailableError where there is no
        checkpoint."""
        manifest = self._reader.newest()
        age = self._clock.milliseconds() - manifest.committed_ms if manifest.epoch else None
        return Staleness(manifest.epoch, manifest.committed_ms, age)

    def close(self) -> None:
        """Release what was opened; stores that were handed out cannot be read any more."""
        self._reader.close()

    def _check_known(self, store_name: str) -> None:
        if store_name not in self._builders:
            raise UnknownStateStoreError(
                f"Cannot get state store {store_name} because no such store is registered in the topology. It has: "
                f"{', '.join(sorted(self._builders)) or 'none'}."
            )


class _Provider:
    """Has the stores that one call of `store` asked for (implements StateStoreProvider)."""

    def __init__(self, reader: StateReader, parameters: StoreQueryParameters) -> None:
        self._reader = reader
        self._partition = parameters.partition

    def stores(self, store_name: str, store_type: QueryableStoreType) -> Sequence[StateStore]:
        """Return the stores of the partitions that are asked for, all as of one commit."""
        found = [task.store(store_name) for task in self._reader.read(store_name, self._partition).tasks]
        stores = [store for store in found if store is not None]
        if not stores:
            if self._partition is not None:
                raise InvalidStateStorePartitionError(
                    f"The specified partition {self._partition} for store {store_name} does not exist."
                )
            raise InvalidStateStoreError(
                f"The state store, {store_name}, is not in the checkpoint: it was made by another topology."
            )
        for store in stores:
            if not store_type.accepts(store):
                raise InvalidStateStoreError(
                    f"Cannot get state store {store_name} because the queryable store type [{store_type}] does not "
                    f"accept the actual store type [{type(store).__name__}]."
                )
        return stores
