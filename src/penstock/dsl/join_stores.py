"""The stores of a join of two streams: their names, sizes and settings, and checks of user-supplied ones."""

from __future__ import annotations

from penstock.dsl.join_options import StreamJoined
from penstock.errors import StreamsError
from penstock.plan import names
from penstock.processor.joiner import JoinType
from penstock.serdes import Serde
from penstock.serdes.list import ListSerde
from penstock.serdes.outer_join import LeftOrRightValueSerde, TimestampedKeyAndJoinSideSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import KeyValueBytesStoreSupplier, WindowBytesStoreSupplier
from penstock.windows import JoinWindows


class StreamJoinStores:
    """Describes the stores of one join (Kafka classes: StreamJoinedStoreFactory, OuterStreamJoinStoreFactory).

    Args:
        options: the options of the join.
        windows: its windows.

    Raises:
        StreamsError: two stores have the same name.
    """

    def __init__(self, options: StreamJoined, windows: JoinWindows) -> None:
        this, other = options.this_store_supplier, options.other_store_supplier
        if this is not None and other is not None and this.name == other.name:
            raise StreamsError("Both StoreSuppliers have the same name.  StoreSuppliers must provide unique names")
        self._options = options
        self._windows = windows
        self._retention_ms = windows.size_ms + windows.grace_period_ms
        self._in_memory = None if options.store_type is None else options.store_type == "in_memory"

    def this(self, generated: str, suffix: str) -> StoreBuilder:
        """Return the store of this stream's records; raises StreamsError for an unsuitable supplier.

        Args:
            generated: the generated name of the join's processor, from which the store's name is derived if the user
                set no name.
            suffix: the suffix of the user's name.
        """
        return self._window_store(self._options.this_store_supplier, generated, suffix, self._options.value_serde)

    def other(self, generated: str, suffix: str) -> StoreBuilder:
        """Return the store of the other stream's records, with arguments and errors like `this`."""
        options = self._options
        return self._window_store(options.other_store_supplier, generated, suffix, options.other_value_serde)

    def outer(self, type: JoinType, this_generated: str) -> StoreBuilder | None:
        """Return the store of unmatched records, or None for an inner join.

        this_generated: the generated name of this side's processor.
        """
        if not type.keeps_left:
            return None
        options, this = self._options, self._options.this_store_supplier
        if this is not None or options.store_name is not None:
            base = options.store_name if this is None else this.name
            name = f"{base}{'-outer' if type.keeps_right else '-left'}-shared-join-store"
        else:
            prefix = names.STREAM_OUTER_THIS if type.keeps_right else names.STREAM_JOIN_THIS
            name = f"{names.STREAM_OUTER_SHARED}{this_generated.removeprefix(prefix)}-store"
        in_memory = this.in_memory if this is not None and options.store_type is None else self._in_memory
        return StoreBuilder(
            KeyValueBytesStoreSupplier(name, in_memory),
            TimestampedKeyAndJoinSideSerde(options.key_serde),
            ListSerde(LeftOrRightValueSerde(options.value_serde, options.other_value_serde)),
            logging=options.logging,
            changelog_config=options.changelog_config,
        )

    def _window_store(
        self, supplier: WindowBytesStoreSupplier | None, generated: str, suffix: str, value_serde: Serde | None
    ) -> StoreBuilder:
        options, windows = self._options, self._windows
        if supplier is not None:
            self._check(supplier)
            return StoreBuilder(supplier, options.key_serde, value_serde, logs_headers=True)
        base = generated if options.store_name is None else options.store_name + suffix
        return StoreBuilder(
            WindowBytesStoreSupplier(
                f"{base}-store",
                self._retention_ms,
                windows.size_ms,
                retain_duplicates=True,
                in_memory=self._in_memory,
                keeps_headers=None,
            ),
            options.key_serde,
            value_serde,
            logging=options.logging,
            # duplicates have distinct keys, so there is nothing to compact
            changelog_config={**options.changelog_config, "cleanup.policy": "delete"} if options.logging else {},
            logs_headers=True,
        )

    def _check(self, supplier: WindowBytesStoreSupplier) -> None:
        if not supplier.retain_duplicates:
            raise StreamsError("The StoreSupplier must set retainDuplicates=true, found retainDuplicates=false")
        if (supplier.retention_ms, supplier.window_size_ms) != (self._retention_ms, self._windows.size_ms):
            raise StreamsError(
                f"Window settings mismatch. WindowBytesStoreSupplier settings {supplier} must match JoinWindows "
                f"settings {self._windows} for the window size and retention period"
            )
