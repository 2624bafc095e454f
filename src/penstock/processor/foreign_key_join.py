"""The join of two tables by a foreign key (KIP-213).

Contains five processors, in the order in which a change passes through them.

A row of the primary table sends a subscription to the task of its foreign key. That task stores it and responds with
the current value in the foreign table. An update of the foreign table sends responses to all subscriptions to its key.
At the primary table, a response counts only if the row has not changed since: it carries a hash of the row's value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import BatchProcessor, EngineContext, FailureHandler, Processor, ProcessorContext, RowOrigin
from penstock.processor.columns import apply, composed, kept_rows
from penstock.processor.first_results import FOREIGN_KEY, TABLE_JOINER, UsesResults, adapting
from penstock.processor.forwarding import KeyValueStoreWrapper, put_last
from penstock.processor.store_reader import StoreReader
from penstock.processor.stream_partitioner import PartitionerWithHeaders, with_headers
from penstock.processor.table import StoreValueGetterSupplier, ValueGetterSupplier
from penstock.record import Change, Headers, Int64Array, Record, RecordBatch, ValueAndTimestamp, take_from
from penstock.serdes import BytesSerde, Serde
from penstock.serdes.api import inner_serde
from penstock.serdes.subscription import (
    Instruction,
    SubscriptionResponseWrapper,
    SubscriptionWrapper,
    combined_key,
    combined_key_prefix,
    hash_of,
)
from penstock.state.api import EngineTimestampedKeyValueStore, KeyValueStore

_NOT_SINGLE = (
    "The partitions returned by StreamPartitioner#partitions method when used for FK join should be a singleton set"
)
_BYTES = BytesSerde()
_DELETES = (Instruction.DELETE_KEY_AND_PROPAGATE, Instruction.DELETE_KEY_NO_PROPAGATE)

ForeignKeyExtractor = Callable[..., Any]


class CombinedKey(NamedTuple):
    """The keys of both tables (Kafka class: CombinedKey)."""

    foreign_key: Any
    primary_key: Any


class SubscriptionSend(BatchProcessor, UsesResults):
    """Sends the subscriptions of the primary table's rows (Kafka class: SubscriptionSendProcessorSupplier).

    Args:
        extractor: returns the foreign key from the value, or from key and value if `with_key`.
        with_key: whether the extractor takes key and value.
        keeps_left: whether a row has a result without a value of the foreign table.
        drop_out_of_order: whether the table is versioned.
        foreign_key_serde: the serde of foreign keys; None for `default.key.serde`.
        value_serde: the serde of the rows' values; None for `default.value.serde`.
        topic: the topic of the subscriptions, without prefix.
    """

    held = (FOREIGN_KEY,)

    def __init__(
        self,
        extractor: ForeignKeyExtractor,
        with_key: bool,
        keeps_left: bool,
        drop_out_of_order: bool,
        foreign_key_serde: Serde | None,
        value_serde: Serde | None,
        topic: str,
    ) -> None:
        self._extract: ForeignKeyExtractor = (
            extractor if with_key else adapting(extractor, lambda key, value: extractor(value))
        )
        self._keeps_left = keeps_left
        self._drop_out_of_order = drop_out_of_order
        self._foreign_key_serde = foreign_key_serde
        self._value_serde = value_serde
        self._topic = topic

    def init(self, context: ProcessorContext) -> None:
        """Get the serdes, and the partition that receives the responses."""
        super().init(context)
        self._keys = inner_serde(self._foreign_key_serde or context.key_serde, "key")
        self._values = inner_serde(self._value_serde or context.value_serde, "value")
        self._full_topic = f"{context.application_id}-{self._topic}"
        self._partition = int(context.task_id.rpartition("_")[2])

    def process(self, record: Record[Any, Change]) -> None:
        """Forward the subscription changes of the row's old and new foreign key."""
        for foreign_key, subscription in self._subscriptions(record.key, record.value, record.headers):
            self.context.forward(Record(foreign_key, subscription, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the subscription changes of all rows."""
        applied = apply(self._subscriptions, (batch.keys, batch.values, batch.header_column()), failures)
        rows = np.arange(len(batch), dtype=np.int64) if applied.kept is None else applied.kept
        pairs = list(chain.from_iterable(applied.results))
        keys, subscriptions = [key for key, _ in pairs], [subscription for _, subscription in pairs]
        counts = np.fromiter(map(len, applied.results), np.int64, len(rows))
        return _multiplied(batch, keys, subscriptions, np.repeat(rows, counts))

    def _subscriptions(self, key: Any, change: Change, headers: Headers) -> Sequence[tuple[Any, SubscriptionWrapper]]:
        """Return the subscription changes of the row `key`, each with its foreign key."""
        new, old, is_latest = change
        if self._drop_out_of_order and not is_latest:
            cast(EngineContext, self.context).count_dropped(DropReason.OUT_OF_ORDER)
            return ()
        if new is None and old is None:
            return ()
        old_key = None if old is None else self._extract(key, old)
        new_key = None if new is None else self._extract(key, new)
        changed = old_key is not None and (
            new_key is None or self._serialized(new_key, headers) != self._serialized(old_key, headers)
        )
        hash = None if new is None else hash_of(self._values.serialize(f"{self._full_topic}-vh", new, headers))

        def subscription(foreign_key: Any, instruction: Instruction) -> tuple[Any, SubscriptionWrapper]:
            return foreign_key, SubscriptionWrapper(hash, instruction, key, self._partition)

        if self._keeps_left or (changed and new_key is not None):
            left = [subscription(old_key, Instruction.DELETE_KEY_NO_PROPAGATE)] if changed else []
            return [*left, subscription(new_key, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]
        if new_key is not None:
            return [subscription(new_key, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)]
        if new is not None:
            cast(EngineContext, self.context).count_dropped(DropReason.NULL_KEY)
        return () if old_key is None else [subscription(old_key, Instruction.DELETE_KEY_AND_PROPAGATE)]

    def _serialized(self, key: Any, headers: Headers) -> bytes:
        return self._keys.serialize(f"{self._full_topic}-fk", key, headers)


class SubscriptionReceive(BatchProcessor):
    """Stores the subscriptions at the task of their foreign key.

    Kafka class: SubscriptionReceiveProcessorSupplier.

    Args:
        store_name: the name of the store.
        foreign_key_serde: the serde of foreign keys; None for `default.key.serde`.
        primary_key_serde: the serde of primary keys; None for `default.key.serde`.
        topic: the topic of the subscriptions, without prefix.
    """

    def __init__(
        self, store_name: str, foreign_key_serde: Serde | None, primary_key_serde: Serde | None, topic: str
    ) -> None:
        self._store_name = store_name
        self._foreign_key_serde = foreign_key_serde
        self._primary_key_serde = primary_key_serde
        self._topic = topic

    def init(self, context: ProcessorContext) -> None:
        """Get the store and the serdes."""
        super().init(context)
        self._store: EngineTimestampedKeyValueStore = context.get_state_store(self._store_name)
        self._foreign_keys = inner_serde(self._foreign_key_serde or context.key_serde, "key")
        self._primary_keys = inner_serde(self._primary_key_serde or context.key_serde, "key")
        self._full_topic = f"{context.application_id}-{self._topic}"

    def process(self, record: Record[Any, SubscriptionWrapper]) -> None:
        """Store or delete the subscription, then forward it for the response.

        Subscriptions without a foreign key are not stored.
        """
        key, subscription = record.key, record.value
        if key is None:
            if not _needs_no_key(subscription):
                cast(EngineContext, self.context).count_dropped(DropReason.NULL_KEY)
                return
        else:
            store_key = combined_key(
                self._foreign_keys.serialize(f"{self._full_topic}-fk", key, record.headers),
                self._primary_keys.serialize(f"{self._full_topic}-pk", subscription.primary_key, record.headers),
            )
            kept = _kept(subscription)
            self._store.put(store_key, None if kept is None else ValueAndTimestamp(kept, record.timestamp))
        self.context.forward(
            Record(CombinedKey(key, subscription.primary_key), subscription, record.timestamp, record.headers)
        )

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Store or delete the subscriptions, and return those that may need a response."""
        keyed = np.fromiter((key is not None for key in batch.keys), np.bool_, len(batch))
        self._store_columns(batch if keyed.all() else batch.take(np.flatnonzero(keyed)))
        rows: RowOrigin = None
        if not keyed.all():
            kept = np.fromiter(map(_needs_no_key, batch.values), np.bool_, len(batch)) | keyed
            rows = np.flatnonzero(kept)
            cast(EngineContext, self.context).count_dropped(DropReason.NULL_KEY, len(batch) - len(rows))
            batch = batch.take(rows)
        keys = [CombinedKey(key, value.primary_key) for key, value in zip(batch.keys, batch.values, strict=True)]
        return RecordBatch(keys, batch.values, batch.timestamps, batch.offsets, batch.headers), rows

    def _store_columns(self, batch: RecordBatch) -> None:
        foreign = self._foreign_keys.serialize_column(f"{self._full_topic}-fk", batch.keys, batch.headers)
        primary = self._primary_keys.serialize_column(
            f"{self._full_topic}-pk", [subscription.primary_key for subscription in batch.values], batch.headers
        )
        kept = RecordBatch(batch.keys, list(map(_kept, batch.values)), batch.timestamps, batch.offsets, batch.headers)
        store_keys = list(map(combined_key, cast("list[bytes]", foreign), cast("list[bytes]", primary)))
        put_last(cast(EngineContext, self.context), self._store, store_keys, kept)


def _needs_no_key(subscription: SubscriptionWrapper) -> bool:
    """Return whether a subscription without a foreign key has a response."""
    return subscription.instruction is Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE


def _kept(subscription: SubscriptionWrapper) -> SubscriptionWrapper | None:
    """Return the entry of the store after `subscription`; None if it deletes the entry."""
    return None if subscription.instruction in _DELETES else subscription


class SubscriptionJoin(Processor, StoreReader):
    """Responds to a subscription with the current value of the foreign table.

    Kafka class: SubscriptionJoinProcessorSupplier.

    Args:
        foreign_table: looks up the values.
    """

    def __init__(self, foreign_table: ValueGetterSupplier) -> None:
        self._foreign_table_supplier = foreign_table

    def read_stores(self) -> tuple[str, ...]:
        """Return the stores of the foreign table."""
        return self._foreign_table_supplier.store_names()

    def init(self, context: ProcessorContext) -> None:
        """Prepare the look-up."""
        super().init(context)
        self._foreign_table = self._foreign_table_supplier.get()
        self._foreign_table.init(context)

    def process(self, record: Record[CombinedKey, SubscriptionWrapper]) -> None:
        """Forward the response, if the subscription requests one."""
        foreign_key, primary_key = record.key
        subscription = record.value
        if subscription.instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
            return
        found = None if foreign_key is None else self._foreign_table.get(foreign_key)
        response = _response(subscription, None if found is None else found.value)
        if response is not None:
            timestamp = record.timestamp if found is None else max(record.timestamp, found.timestamp)
            self.context.forward(Record(primary_key, response, timestamp, record.headers))

    def close(self) -> None:
        """Close the look-up."""
        self._foreign_table.close()


class BatchSubscriptionJoin(SubscriptionJoin, BatchProcessor):
    """SubscriptionJoin with batches, for a foreign table with a store and without versions.

    Args:
        foreign_table: looks up the values.
    """

    def __init__(self, foreign_table: StoreValueGetterSupplier) -> None:
        super().__init__(foreign_table)
        self._foreign_store_name = foreign_table.store_name

    def init(self, context: ProcessorContext) -> None:
        """Prepare the look-up."""
        super().init(context)
        self._foreign_store = KeyValueStoreWrapper(context, self._foreign_store_name)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the responses that the subscriptions request."""
        values, found_timestamps = self._foreign_store.get_nullable_columns([key for key, _ in batch.keys])
        timestamps = np.maximum(batch.timestamps, found_timestamps)
        responses = list(map(_response, batch.values, values))
        rows = np.flatnonzero(np.fromiter((response is not None for response in responses), np.bool_, len(batch)))
        asked = batch.take(rows)
        keys = [primary_key for _, primary_key in asked.keys]
        return RecordBatch(keys, take_from(responses, rows), timestamps[rows], asked.offsets, asked.headers), rows


def _response(subscription: SubscriptionWrapper, foreign_value: Any) -> SubscriptionResponseWrapper | None:
    """Return the response that `subscription` requests, if any.

    foreign_value: that of its foreign key, None if absent.
    """
    hash, instruction, _, partition = subscription
    if instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
        return None
    if foreign_value is None and instruction is Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
        return None
    deleted = instruction is Instruction.DELETE_KEY_AND_PROPAGATE
    return SubscriptionResponseWrapper(hash, None if deleted else foreign_value, partition)


class ForeignTableJoin(BatchProcessor, StoreReader):
    """Responds to all subscriptions to a foreign key when its value changes.

    Kafka class: ForeignTableJoinProcessorSupplier.

    Args:
        store_name: the name of the subscription store.
        foreign_key_serde: the serde of foreign keys; None for `default.key.serde`.
        drop_out_of_order: whether the foreign table is versioned.
        topic: the topic of the subscriptions, without prefix.
    """

    def __init__(self, store_name: str, foreign_key_serde: Serde | None, drop_out_of_order: bool, topic: str) -> None:
        self._store_name = store_name
        self._foreign_key_serde = foreign_key_serde
        self._drop_out_of_order = drop_out_of_order
        self._topic = topic

    def read_stores(self) -> tuple[str, ...]:
        """Return the store of the subscriptions."""
        return (self._store_name,)

    def init(self, context: ProcessorContext) -> None:
        """Get the store and the serde."""
        super().init(context)
        self._store: KeyValueStore = context.get_state_store(self._store_name)
        self._foreign_keys = inner_serde(self._foreign_key_serde or context.key_serde, "key")
        self._full_topic = f"{context.application_id}-{self._topic}"

    def process(self, record: Record[Any, Change]) -> None:
        """Forward a response for each subscription, in the byte order of the primary keys."""
        prefix = self._prefix(record.key, record.value, record.headers)
        if prefix is not None:
            for subscription in self._subscriptions(prefix):
                response = _updated(subscription, record.value.new_value)
                self.context.forward(Record(subscription.primary_key, response, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the responses to the subscriptions of all rows; reads those to each foreign key once."""
        prefixes = list(map(self._prefix, batch.keys, batch.values, batch.header_column()))
        found = {
            prefix: [] if prefix is None else list(self._subscriptions(prefix)) for prefix in dict.fromkeys(prefixes)
        }
        keys: list[Any] = []
        responses: list[SubscriptionResponseWrapper] = []
        for prefix, change in zip(prefixes, batch.values, strict=True):
            keys += [subscription.primary_key for subscription in found[prefix]]
            responses += [_updated(subscription, change.new_value) for subscription in found[prefix]]
        rows = np.arange(len(batch), dtype=np.int64)
        counts = np.fromiter((len(found[prefix]) for prefix in prefixes), np.int64, len(batch))
        return _multiplied(batch, keys, responses, np.repeat(rows, counts))

    def _prefix(self, key: Any, change: Change, headers: Headers) -> bytes | None:
        """Return the store keys' prefix for the foreign key of an update, None if the update is dropped."""
        if key is None or (self._drop_out_of_order and not change.is_latest):
            reason = DropReason.NULL_KEY if key is None else DropReason.OUT_OF_ORDER
            cast(EngineContext, self.context).count_dropped(reason)
            return None
        return combined_key_prefix(self._foreign_keys.serialize(f"{self._full_topic}-fk", key, headers))

    def _subscriptions(self, prefix: bytes) -> Iterator[SubscriptionWrapper]:
        with self._store.prefix_scan(prefix, _BYTES) as entries:
            for _, (subscription, _) in entries:
                yield subscription


def _updated(subscription: SubscriptionWrapper, foreign_value: Any) -> SubscriptionResponseWrapper:
    """Return the response to a stored subscription after an update of its foreign key."""
    return SubscriptionResponseWrapper(subscription.hash, foreign_value, subscription.primary_partition)


class ResponseJoin(Processor, UsesResults, StoreReader):
    """Joins a response with its row of the primary table.

    Kafka class: ResponseJoinProcessorSupplier.

    Args:
        primary_table: looks up the rows.
        value_serde: the serde of the rows' values; None for `default.value.serde`.
        joiner: returns the result from the values of the primary and the foreign table.
        keeps_left: whether a row has a result without a value of the foreign table.
        topic: the topic of the subscriptions, without prefix.
    """

    held = (TABLE_JOINER,)

    def __init__(
        self,
        primary_table: ValueGetterSupplier,
        value_serde: Serde | None,
        joiner: Callable[[Any, Any], Any],
        keeps_left: bool,
        topic: str,
    ) -> None:
        self._primary_table_supplier = primary_table
        self._value_serde = value_serde
        self._joiner = joiner
        self._keeps_left = keeps_left
        self._topic = topic

    def read_stores(self) -> tuple[str, ...]:
        """Return the stores of the primary table."""
        return self._primary_table_supplier.store_names()

    def init(self, context: ProcessorContext) -> None:
        """Prepare the look-up and the serde."""
        super().init(context)
        self._primary_table = self._primary_table_supplier.get()
        self._primary_table.init(context)
        self._values = inner_serde(self._value_serde or context.value_serde, "value")
        self._hash_topic = f"{context.application_id}-{self._topic}-vh"

    def process(self, record: Record[Any, SubscriptionResponseWrapper]) -> None:
        """Forward the result, None for a deleted one.

        Responses to a row that has changed since are dropped.
        """
        found = self._primary_table.get(record.key)
        row = None if found is None else found.value
        current = None if row is None else hash_of(self._values.serialize(self._hash_topic, row, record.headers))
        if record.value.hash != current:
            cast(EngineContext, self.context).count_dropped(DropReason.OUTDATED)
            return
        result = self._result(row, record.value)
        self.context.forward(Record(record.key, result, record.timestamp, record.headers))

    def _result(self, row: Any, response: SubscriptionResponseWrapper) -> Any:
        """Return the result of the row's value, None without a row, and a response."""
        foreign_value = response.foreign_value
        if row is None or (foreign_value is None and not self._keeps_left):
            return None
        return self._joiner(row, foreign_value)

    def close(self) -> None:
        """Close the look-up."""
        self._primary_table.close()


class BatchResponseJoin(ResponseJoin, BatchProcessor):
    """ResponseJoin with batches, for a primary table with a store and without versions.

    The arguments are those of ResponseJoin.
    """

    def __init__(
        self,
        primary_table: StoreValueGetterSupplier,
        value_serde: Serde | None,
        joiner: Callable[[Any, Any], Any],
        keeps_left: bool,
        topic: str,
    ) -> None:
        super().__init__(primary_table, value_serde, joiner, keeps_left, topic)
        self._primary_store_name = primary_table.store_name

    def init(self, context: ProcessorContext) -> None:
        """Prepare the look-up and the serde."""
        super().init(context)
        self._primary_store = KeyValueStoreWrapper(context, self._primary_store_name)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the results; responses to rows that have changed since are dropped."""
        found, _ = self._primary_store.get_columns(batch.keys)
        serialized = self._values.serialize_column(self._hash_topic, found, batch.headers)
        is_current = np.fromiter(
            (
                response.hash == (None if row is None else hash_of(row))
                for response, row in zip(batch.values, serialized, strict=True)
            ),
            np.bool_,
            len(batch),
        )
        rows: RowOrigin = None
        if not is_current.all():
            rows = np.flatnonzero(is_current)
            cast(EngineContext, self.context).count_dropped(DropReason.OUTDATED, len(batch) - len(rows))
            batch, found = batch.take(rows), take_from(found, rows)

        def failed(row: int, error: Exception) -> None:
            failures(row if rows is None else int(rows[row]), error)

        applied = apply(self._result, (found, batch.values), failed)
        rest = kept_rows(batch, applied.kept)
        results = RecordBatch(rest.keys, applied.results, rest.timestamps, rest.offsets, rest.headers)
        return results, composed(rows, applied.kept)


def _multiplied(
    batch: RecordBatch, keys: list[Any], values: list[Any], origin: Int64Array
) -> tuple[RecordBatch, Int64Array]:
    """Return records with the times and headers of the rows `origin` of `batch`, and `origin`."""
    headers = None if batch.headers is None else take_from(batch.headers, origin)
    return RecordBatch(keys, values, batch.timestamps[origin], batch.offsets[origin], headers), origin


# ---------- destinations of subscriptions and responses


class SingletonPartitioner:
    """Asks a user's partitioner for the single partition of a key, without its value.

    Kafka classes: SubscriptionSinkPartitioner, ForeignResponseSinkPartitioner (in KTableImpl).

    Args:
        partitioner: the user's partitioner.
    """

    def __init__(self, partitioner: Callable[..., set[int] | None]) -> None:
        self._partitioner = partitioner

    @cached_property
    def _choose(self) -> PartitionerWithHeaders:
        # Not set by the constructor: checkpoints of earlier versions have objects without it.
        return with_headers(self._partitioner)

    def __call__(self, topic: str, key: Any, value: Any, headers: Headers, partitions: int) -> set[int] | None:
        """Return the partition, None for Kafka's default.

        Raises ValueError if the partitioner returns more or less than one partition.
        """
        chosen = self._choose(topic, key, None, headers, partitions)
        if chosen is not None and len(chosen) != 1:
            raise ValueError(_NOT_SINGLE)
        return chosen


def partition_of_response(topic: str, key: Any, value: SubscriptionResponseWrapper, partitions: int) -> set[int] | None:
    """Return the partition of the subscription, or None (Kafka's default) if it is unknown."""
    return None if value.primary_partition is None else {value.primary_partition}
