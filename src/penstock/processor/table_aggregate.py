"""Aggregations of a grouped table.

One operator groups the updates by another key, and others add new values to the aggregate of a key and subtract old
ones.

An update whose old and new value have the same new key is sent as one record (KIP-904), unless `upgrade.from` names a
version before 3.5. Otherwise the old value is sent first, as a separate record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, cast

from penstock.errors import StreamsError
from penstock.processor.aggregate import Aggregator, Initializer, Reducer
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.first_results import (
    ADDER,
    GROUP_MAPPER,
    INITIALIZER,
    KEYED_ADDER,
    KEYED_SUBTRACTOR,
    SUBTRACTOR,
    UsesResults,
)
from penstock.processor.forwarding import KeyValueStoreWrapper, TimestampedTupleForwarder
from penstock.processor.stateless import as_pair
from penstock.record import Change, Record

_ONE_RECORD_SINCE = (3, 5)


class TableGroupBy(Processor, UsesResults):
    """Maps the old and new value of each update to new keys and values.

    Kafka class: KTableRepartitionMap.

    Args:
        mapper: returns the new key and value from key and value; a value is left out if the result is None or contains
            None.
        skip_older_versions: whether to skip updates that are not the latest of their key.
    """

    held = (GROUP_MAPPER,)

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any] | None], skip_older_versions: bool) -> None:
        self._mapper = mapper
        self._skip_older_versions = skip_older_versions

    def init(self, context: ProcessorContext) -> None:
        """Determine whether an upgrade requires two records."""
        super().init(context)
        upgrade_from = cast(EngineContext, context).config("upgrade.from")
        self._one_record = upgrade_from is None or tuple(map(int, upgrade_from.split(".")[:2])) >= _ONE_RECORD_SINCE

    def process(self, record: Record[Any, Change]) -> None:
        """Forward up to two records; raises StreamsError for a record without a key."""
        if record.key is None:
            raise StreamsError("Record key for the grouping KTable should not be null.")
        change = record.value
        if self._skip_older_versions and not change.is_latest:
            return
        new = self._pair(record.key, change.new_value)
        old = self._pair(record.key, change.old_value)
        if self._one_record and old is not None and new is not None and old[0] == new[0]:
            self._forward(record, new[0], Change(new[1], old[1], change.is_latest))
            return
        if old is not None:
            self._forward(record, old[0], Change(None, old[1], change.is_latest))
        if new is not None:
            self._forward(record, new[0], Change(new[1], None, change.is_latest))

    def _pair(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        mapped = None if value is None else self._mapper(key, value)
        pair = None if mapped is None else as_pair(mapped)
        return None if pair is None or pair[0] is None or pair[1] is None else pair

    def _forward(self, record: Record[Any, Change], key: Any, change: Change) -> None:
        self.context.forward(Record(key, change, record.timestamp, record.headers))


class _TableAggregation(Processor):
    """The base of the aggregations; subclasses define the change of an aggregate by values."""

    operator: str

    def __init__(self, store_name: str, send_old_values: bool) -> None:
        self._store_name = store_name
        self._send_old_values = send_old_values

    @abstractmethod
    def _subtracted(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate without `value`."""
        raise NotImplementedError

    @abstractmethod
    def _added(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate with `value`; `aggregate` is None for a new key."""
        raise NotImplementedError

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        super().init(context)
        self._store = KeyValueStoreWrapper(context, self._store_name)
        self._forwarder = TimestampedTupleForwarder(self._store.store, context, self._send_old_values)

    def process(self, record: Record[Any, Change]) -> None:
        """Update the aggregate of the record's key.

        The old value is subtracted if the key has an aggregate, then the new value is added. Raises StreamsError for a
        record without a key.
        """
        key, change, timestamp = record.key, record.value, record.timestamp
        if key is None:
            raise StreamsError(
                f"Record key for KTable {self.operator} operator with state {self._store_name} should not be null."
            )
        entry = self._store.get(key)
        before = None if entry is None else entry.value
        aggregate = before
        if change.old_value is not None and before is not None:
            aggregate = self._subtracted(key, change.old_value, before)
        if change.new_value is not None:
            aggregate = self._added(key, change.new_value, aggregate)
        if entry is not None:
            timestamp = max(timestamp, entry.timestamp)
        is_latest = self._store.put(key, aggregate, timestamp)
        if is_latest is not None:
            self._forwarder.maybe_forward(Record(key, Change(aggregate, before, is_latest), timestamp, record.headers))


class TableAggregate(_TableAggregation, UsesResults):
    """Adds values to an aggregate and subtracts them (Kafka class: KTableAggregate).

    Args:
        store_name: the name of the store.
        initializer: returns the first aggregate of a key.
        adder: returns the next aggregate from key, new value and aggregate; None deletes it.
        subtractor: returns the next aggregate from key, old value and aggregate; None deletes it.
        send_old_values: whether updates include the previous value.
    """

    held = (INITIALIZER, KEYED_ADDER, KEYED_SUBTRACTOR)

    operator = "aggregate"

    def __init__(
        self,
        store_name: str,
        initializer: Initializer,
        adder: Aggregator,
        subtractor: Aggregator,
        send_old_values: bool,
    ) -> None:
        super().__init__(store_name, send_old_values)
        self._initializer = initializer
        self._adder = adder
        self._subtractor = subtractor

    def _subtracted(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self._subtractor(key, value, aggregate)

    def _added(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self._adder(key, value, self._initializer() if aggregate is None else aggregate)


class TableCount(_TableAggregation):
    """Counts the entries of each group (Kafka class: the KTableAggregate of KGroupedTable.count).

    Args:
        store_name: the name of the store.
        send_old_values: whether updates include the previous count.
    """

    operator = "aggregate"

    def _subtracted(self, key: Any, value: Any, aggregate: Any) -> Any:
        return aggregate - 1

    def _added(self, key: Any, value: Any, aggregate: Any) -> Any:
        return 1 if aggregate is None else aggregate + 1


class TableReduce(_TableAggregation, UsesResults):
    """Combines the values of each group (Kafka class: KTableReduce).

    The first value is stored unchanged.

    Args:
        store_name: the name of the store.
        adder: returns the next aggregate from aggregate and new value; None deletes it.
        subtractor: returns the next aggregate from aggregate and old value; None deletes it.
        send_old_values: whether updates include the previous value.
    """

    held = (ADDER, SUBTRACTOR)

    operator = "reduce"

    def __init__(self, store_name: str, adder: Reducer, subtractor: Reducer, send_old_values: bool) -> None:
        super().__init__(store_name, send_old_values)
        self._adder = adder
        self._subtractor = subtractor

    def _subtracted(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self._subtractor(aggregate, value)

    def _added(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else self._adder(aggregate, value)
