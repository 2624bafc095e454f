"""The processor that fills the store of a global table from its topic."""

from __future__ import annotations

import logging
from typing import Any, cast

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.record import Record, ValueAndTimestamp
from penstock.state.api import KeyValueStore
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))


class GlobalTableSource(Processor):
    """Stores the latest value of each key with its timestamp.

    A null value deletes, and a record without a key is dropped (Kafka class: the KTableSource of a GlobalKTable).
    Nothing is forwarded: a global table is only read.

    Args:
        store_name: the name of the table's store.
    """

    def __init__(self, store_name: str) -> None:
        self._store_name = store_name

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        super().init(context)
        self._store: KeyValueStore = context.get_state_store(self._store_name)

    def process(self, record: Record[Any, Any]) -> None:
        """Store the record."""
        if record.key is None:
            _log.warning("Skipping record due to null key: %s.", self.context.record_metadata)
            cast(EngineContext, self.context).count_dropped(DropReason.NULL_KEY)
            return
        entry = None if record.value is None else ValueAndTimestamp(record.value, record.timestamp)
        self._store.put(record.key, entry)
