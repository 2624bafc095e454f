"""The join of two tables by a foreign key (KIP-213).

Contains five processors, in the order in which a change passes through them.

A row of the primary table sends a subscription to the task of its foreign key. That task stores it and responds with
the current value in the foreign table. An update of the foreign table sends responses to all subscriptions to its key.
At the primary table, a response counts only if the row has not changed since: it carries a hash of the row's value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, cast

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.first_results import FOREIGN_KEY, TABLE_JOINER, UsesResults, adapting
from penstock.processor.store_reader import StoreReader
from penstock.processor.stream_partitioner import PartitionerWithHeaders, with_headers
from penstock.processor.table import ValueGetterSupplier
from penstock.record import Change, Headers, Record, ValueAndTimestamp
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
from penstock.state.api import KeyValueStore

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


class SubscriptionSend(Processor, UsesResults):
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
        new, old, is_latest = record.value
        if self._drop_out_of_order and not is_latest:
            cast(EngineContext, self.context).count_dropped(DropReason.OUT_OF_ORDER)
            return
        if new is None and old is None:
            return
        old_key = None if old is None else self._extract(record.key, old)
        new_key = None if new is None else self._extract(record.key, new)
        changed = old_key is not None and (
            new_key is None or self._serialized(new_key, record.headers) != self._serialized(old_key, record.headers)
        )
        hash = None
        if new is not None:
            hash = hash_of(self._values.serialize(f"{self._full_topic}-vh", new, record.headers))
        if self._keeps_left:
            if changed:
                self._send(record, hash, old_key, Instruction.DELETE_KEY_NO_PROPAGATE)
            self._send(record, hash, new_key, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
            return
        if new_key is None:
            if new is not None:
                cast(EngineContext, self.context).count_dropped(DropReason.NULL_KEY)
            if old_key is not None:
                self._send(record, hash, old_key, Instruction.DELETE_KEY_AND_PROPAGATE)
        elif changed:
            self._send(record, hash, old_key, Instruction.DELETE_KEY_NO_PROPAGATE)
            self._send(record, hash, new_key, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
        else:
            self._send(record, hash, new_key, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)

    def _serialized(self, key: Any, headers: Headers) -> bytes:
        return self._keys.serialize(f"{self._full_topic}-fk", key, headers)

    def _send(self, record: Record[Any, Any], hash: bytes | None, foreign_key: Any, instruction: Instruction) -> None:
        subscription = SubscriptionWrapper(hash, instruction, record.key, self._partition)
        self.context.forward(Record(foreign_key, subscription, record.timestamp, record.headers))


class SubscriptionReceive(Processor):
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
        self._store: KeyValueStore = context.get_state_store(self._store_name)
        self._foreign_keys = inner_serde(self._foreign_key_serde or context.key_serde, "key")
        self._primary_keys = inner_serde(self._primary_key_serde or context.key_serde, "key")
        self._full_topic = f"{context.application_id}-{self._topic}"

    def process(self, record: Record[Any, SubscriptionWrapper]) -> None:
        """Store or delete the subscription, then forward it for the response.

        Subscriptions without a foreign key are not stored.
        """
        key, subscription = record.key, record.value
        if key is None:
            if subscription.instruction is not Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
                cast(EngineContext, self.context).count_dropped(DropReason.NULL_KEY)
                return
        else:
            store_key = combined_key(
                self._foreign_keys.serialize(f"{self._full_topic}-fk", key, record.headers),
                self._primary_keys.serialize(f"{self._full_topic}-pk", subscription.primary_key, record.headers),
            )
            kept = None if subscription.instruction in _DELETES else ValueAndTimestamp(subscription, record.timestamp)
            self._store.put(store_key, kept)
        self.context.forward(
            Record(CombinedKey(key, subscription.primary_key), subscription, record.timestamp, record.headers)
        )


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
        (foreign_key, primary_key), (hash, instruction, _, partition) = record.key, record.value
        if instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
            return
        found = None if foreign_key is None else self._foreign_table.get(foreign_key)
        if found is None and instruction is Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
            return
        timestamp = record.timestamp if found is None else max(record.timestamp, found.timestamp)
        deleted = found is None or instruction is Instruction.DELETE_KEY_AND_PROPAGATE
        response = SubscriptionResponseWrapper(hash, None if deleted else cast(Any, found).value, partition)
        self.context.forward(Record(primary_key, response, timestamp, record.headers))

    def close(self) -> None:
        """Close the look-up."""
        self._foreign_table.close()


class ForeignTableJoin(Processor, StoreReader):
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
        change: Change = record.value
        if record.key is None or (self._drop_out_of_order and not change.is_latest):
            reason = DropReason.NULL_KEY if record.key is None else DropReason.OUT_OF_ORDER
            cast(EngineContext, self.context).count_dropped(reason)
            return
        prefix = combined_key_prefix(self._foreign_keys.serialize(f"{self._full_topic}-fk", record.key, record.headers))
        with self._store.prefix_scan(prefix, _BYTES) as subscriptions:
            for _, (subscription, _) in subscriptions:
                response = SubscriptionResponseWrapper(
                    subscription.hash, change.new_value, subscription.primary_partition
                )
                self.context.forward(Record(subscription.primary_key, response, record.timestamp, record.headers))


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
        self._full_topic = f"{context.application_id}-{self._topic}"

    def process(self, record: Record[Any, SubscriptionResponseWrapper]) -> None:
        """Forward the result, None for a deleted one.

        Responses to a row that has changed since are dropped.
        """
        hash, foreign_value, _ = record.value
        found = self._primary_table.get(record.key)
        current = None
        if found is not None:
            current = hash_of(self._values.serialize(f"{self._full_topic}-vh", found.value, record.headers))
        if hash != current:
            cast(EngineContext, self.context).count_dropped(DropReason.OUTDATED)
            return
        if found is None or (foreign_value is None and not self._keeps_left):
            result = None
        else:
            result = self._joiner(found.value, foreign_value)
        self.context.forward(Record(record.key, result, record.timestamp, record.headers))

    def close(self) -> None:
        """Close the look-up."""
        self._primary_table.close()


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
