"""Processors of the papers, and adapters to current processors.

Rules: processors take keys and values instead of records; forwarded values have the timestamp of the current record or
punctuation. `init` runs once more when the topology is built, to discover its stores.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import penstock
from penstock import KeyValue, PunctuationType, Record, Stores
from penstock.errors import StreamsError
from penstock.processor.api import ProcessorSupplier
from penstock.serdes import Serde
from penstock.signatures import signature_of
from penstock.state.api import StoreBuilder


class ProcessorContext(Protocol):
    """The interface between a processor of the papers and its task."""

    @property
    def topic(self) -> str | None:
        """The topic of the current record, None in punctuations."""
        ...

    @property
    def partition(self) -> int:
        """Its partition, -1 in punctuations."""
        ...

    @property
    def offset(self) -> int:
        """Its offset, -1 in punctuations."""
        ...

    def forward(self, key: Any, value: Any) -> None:
        """Forward the pair to every child."""
        ...

    def send(
        self, topic: str, key: Any, value: Any, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> None:
        """Write the pair to any topic.

        By default, serdes are those of the stream of `KStream.process`, else the defaults of the configuration.
        """
        ...

    def schedule(self, processor: Processor | int, interval_ms: int | None = None) -> None:
        """Call the processor's `punctuate` every `interval_ms` of stream time.

        Either `schedule(ms)` as in the papers' interface, or `schedule(self, ms)` as in their examples.
        """
        ...

    def commit(self) -> None:
        """Request a commit soon."""
        ...

    def open_store(self, builder: StoreBuilder) -> Any:
        """Return the store of `builder`; called by stores created in `init`."""
        ...


class Processor:
    """A user's processor: override `process`, and the other methods as needed."""

    def init(self, context: ProcessorContext) -> None:
        """Prepare: keep the context, create stores, schedule punctuations."""

    @abstractmethod
    def process(self, key: Any, value: Any) -> None:
        """Process one key and value."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, key, value).")

    def punctuate(self, stream_time_ms: int, /) -> None:
        """Run a scheduled punctuation; may be defined without the argument."""

    def close(self) -> None:
        """Release the resources of `init`."""


class KafkaProcessor(Processor):
    """A named processor with its own `forward` method (first draft).

    Args:
        name: of the node.
    """

    _context: ProcessorContext

    def __init__(self, name: str) -> None:
        self.name = name

    def forward(self, key: Any, value: Any) -> None:
        """Forward the pair to the chained processors."""
        self._context.forward(key, value)


def name_of(processor: KafkaProcessor) -> str:
    """Return the name of `processor`; raises TypeError if its class did not set one."""
    name = getattr(processor, "name", None)
    if not isinstance(name, str):
        kind = type(processor).__name__
        raise TypeError(f"A {kind} has no name: call super().__init__(name) in {kind}.__init__.")
    return name


class ProcessorDef:
    """Creates processors: override `instance`.

    A class, or a function without arguments that returns a new processor, is accepted instead.
    """

    @abstractmethod
    def instance(self) -> Processor:
        """Return a new processor."""
        raise NotImplementedError(f"{type(self).__name__} must define instance(self).")


ProcessorDefLike = ProcessorDef | Processor | Callable[[], Processor]
"""Creates a processor; an existing one is copied for each task."""


class InMemoryKeyValueStore:
    """A store created by a processor in its `init`; it is stored like any other.

    Args:
        name: of the store.
        context: of the task.
        key_serde: None for the default of the configuration.
        value_serde: None for the default of the configuration.
    """

    def __init__(
        self,
        name: str,
        context: ProcessorContext,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> None:
        supplier = Stores.in_memory_key_value_store(name)
        self._store = context.open_store(Stores.key_value_store_builder(supplier, key_serde, value_serde))

    def get(self, key: Any) -> Any:
        """Return the value of `key`, None if absent."""
        return self._store.get(key)

    def put(self, key: Any, value: Any) -> None:
        """Store `value` under `key`; None deletes."""
        self._store.put(key, value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store `value` unless `key` has one; return the previous value, None if absent."""
        return self._store.put_if_absent(key, value)

    def delete(self, key: Any) -> Any:
        """Remove `key`; return its previous value."""
        return self._store.delete(key)

    def range(self, from_key: Any, to_key: Any) -> Iterator[KeyValue]:
        """Return the entries from `from_key` to `to_key`, both inclusive, like `all`."""
        with self._store.range(from_key, to_key) as entries:
            return iter([KeyValue(key, value) for key, value in entries])

    def all(self) -> Iterator[KeyValue]:
        """Return all entries, each with `key` and `value`, in the byte order of the keys.

        The store may be changed during the iteration.
        """
        with self._store.all() as entries:
            return iter([KeyValue(key, value) for key, value in entries])

    def clear(self) -> None:
        """Remove all entries."""
        self._store.clear()

    def close(self) -> None:
        """Do nothing: the task closes its stores."""


class _EmptyStore:
    """An empty store for the run of `init` that discovers stores."""

    def get(self, key: Any) -> None:
        return None

    def put(self, key: Any, value: Any) -> None:
        return None

    def put_if_absent(self, key: Any, value: Any) -> None:
        return None

    def delete(self, key: Any) -> None:
        return None

    def range(self, from_key: Any, to_key: Any) -> AbstractContextManager[tuple[()]]:
        return nullcontext(())

    def all(self) -> AbstractContextManager[tuple[()]]:
        return nullcontext(())

    def clear(self) -> None:
        return None


class _StoreDiscovery:
    """The context of the `init` that discovers stores while the topology is built."""

    topic, partition, offset = None, -1, -1

    def __init__(self) -> None:
        self.builders: list[StoreBuilder] = []

    def open_store(self, builder: StoreBuilder) -> _EmptyStore:
        self.builders.append(builder)
        return _EmptyStore()

    def forward(self, key: Any, value: Any) -> None:
        raise StreamsError("Nothing can be forwarded in init: there is no record to take the timestamp from.")

    def send(
        self, topic: str, key: Any, value: Any, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> None:
        raise StreamsError(f"Nothing can be sent to {topic!r} in init: there is no record to take the timestamp from.")

    def schedule(self, processor: Processor | int, interval_ms: int | None = None) -> None:
        _interval(processor, interval_ms)

    def commit(self) -> None:
        return None


class _TaskContext:
    """The context of a processor in a task."""

    def __init__(
        self,
        context: penstock.ProcessorContext,
        processor: Processor,
        key_serde: Serde | None,
        value_serde: Serde | None,
    ) -> None:
        self._context = context
        self._processor = processor
        self._key_serde = key_serde
        self._value_serde = value_serde
        self.template: Record[Any, Any] | None = None
        """The source of timestamp and headers for forwarded pairs."""

    @property
    def topic(self) -> str | None:
        return self._context.topic

    @property
    def partition(self) -> int:
        return self._context.partition

    @property
    def offset(self) -> int:
        return self._context.offset

    def open_store(self, builder: StoreBuilder) -> Any:
        return self._context.get_state_store(builder.name)

    def forward(self, key: Any, value: Any) -> None:
        if self.template is None:
            raise StreamsError("Nothing can be forwarded in init: there is no record to take the timestamp from.")
        self._context.forward(self.template.with_key(key).with_value(value))

    def send(
        self, topic: str, key: Any, value: Any, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> None:
        self._context.send(topic, key, value, key_serde or self._key_serde, value_serde or self._value_serde)

    def schedule(self, processor: Processor | int, interval_ms: int | None = None) -> None:
        interval = _interval(processor, interval_ms)
        self._context.schedule(interval, PunctuationType.STREAM_TIME, self._punctuate)

    def _punctuate(self, stream_time_ms: int) -> None:
        self.template = Record(None, None, stream_time_ms)
        punctuate: Callable[..., None] = self._processor.punctuate
        signature = signature_of(punctuate)
        punctuate(*(stream_time_ms,) * (0 if signature is None else len(signature.parameters)))

    def commit(self) -> None:
        self._context.commit()


class _Adapter(penstock.Processor):
    """Runs a processor of the papers as a current processor."""

    def __init__(self, processor: Processor, key_serde: Serde | None, value_serde: Serde | None) -> None:
        self._processor = processor
        self._key_serde = key_serde
        self._value_serde = value_serde

    def init(self, context: penstock.ProcessorContext) -> None:
        super().init(context)
        self._own_context = _TaskContext(context, self._processor, self._key_serde, self._value_serde)
        _initialise(self._processor, self._own_context)

    def process(self, record: Record[Any, Any]) -> None:
        self._own_context.template = record
        self._processor.process(record.key, record.value)

    def close(self) -> None:
        self._processor.close()


def _interval(processor: Processor | int, interval_ms: int | None) -> int:
    """Return the interval of a call of `schedule` in either form."""
    interval = processor if isinstance(processor, int) else interval_ms
    if interval is None:
        raise TypeError("schedule needs an interval in ms: schedule(ms) or schedule(processor, ms).")
    return interval


def _initialise(processor: Processor, context: ProcessorContext) -> None:
    if isinstance(processor, KafkaProcessor):
        processor._context = context
    processor.init(context)


class AdaptedSupplier(ProcessorSupplier):
    """Adapts processors of the papers to current ones, with the stores created by their `init`.

    Args:
        make: creates each processor, and one immediately to discover its stores.
        key_serde: the default of `send`.
        value_serde: the default of `send`.
    """

    def __init__(
        self, make: Callable[[], Processor], key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> None:
        discovery = _StoreDiscovery()
        processor = make()
        _initialise(processor, discovery)
        processor.close()
        self._make = make
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._stores = tuple(discovery.builders)

    def get(self) -> penstock.Processor:
        """Return a new processor."""
        return _Adapter(self._make(), self._key_serde, self._value_serde)

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores created by `init`."""
        return self._stores


def adapted(
    definition: ProcessorDefLike, key_serde: Serde | None = None, value_serde: Serde | None = None
) -> AdaptedSupplier:
    """Return the supplier of a definition's processors for a current topology.

    Args:
        definition: creates the processors.
        key_serde: the default of `send`.
        value_serde: the default of `send`.
    """
    if isinstance(definition, ProcessorDef):
        make: Callable[[], Processor] = definition.instance
    else:
        make = partial(_copied, definition) if isinstance(definition, Processor) else definition
    return AdaptedSupplier(make, key_serde, value_serde)


def _copied(processor: Processor) -> Processor:
    """Return a copy of an uninitialised processor for another task."""
    try:
        return copy.deepcopy(processor)
    except TypeError as error:
        raise StreamsError(
            f"{type(processor).__name__} cannot be copied for each task: {error}. Pass a function that creates one "
            "instead, or create in init what cannot be copied."
        ) from error
