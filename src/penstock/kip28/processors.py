"""Processors in the shapes of the papers, and how one runs as a processor of today.

Rules: processors take keys and values, not records; what they forward has the timestamp of the record that is being
processed, or of the punctuation. `init` runs once more when the topology is built, to learn which stores it makes.
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
    """What a processor of the papers may ask of its task."""

    @property
    def topic(self) -> str | None:
        """Topic of the record that is being processed, None in punctuations."""
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
        """Hand the pair to every child."""
        ...

    def send(
        self, topic: str, key: Any, value: Any, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> None:
        """Write the pair to any topic; serdes of None are those of the stream that the processor was given by
        `KStream.process`, or else the defaults of the configuration."""
        ...

    def schedule(self, processor: Processor | int, interval_ms: int | None = None) -> None:
        """Call the processor's `punctuate` every `interval_ms` of stream time: `schedule(ms)` as in the papers'
        interface, or `schedule(self, ms)` as their jobs do."""
        ...

    def commit(self) -> None:
        """Ask for a commit soon."""
        ...

    def open_store(self, builder: StoreBuilder) -> Any:
        """Return the store that `builder` describes; what stores made in `init` call."""
        ...


class Processor:
    """A user's processor: override `process`, and the others where needed."""

    def init(self, context: ProcessorContext) -> None:
        """Prepare: keep the context, make stores, schedule punctuations."""

    @abstractmethod
    def process(self, key: Any, value: Any) -> None:
        """Process one key and value."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, key, value).")

    def punctuate(self, stream_time_ms: int, /) -> None:
        """Do what is due at the scheduled time; may be defined without the argument."""

    def close(self) -> None:
        """Release what `init` took."""


class KafkaProcessor(Processor):
    """A processor with a name that forwards records itself (first draft)."""

    _context: ProcessorContext

    def __init__(self, name: str) -> None:
        """Name the node `name`."""
        self.name = name

    def forward(self, key: Any, value: Any) -> None:
        """Hand the pair to the chained processors."""
        self._context.forward(key, value)


def name_of(processor: KafkaProcessor) -> str:
    """Return the name of `processor`; raises TypeError if its class did not set one."""
    name = getattr(processor, "name", None)
    if not isinstance(name, str):
        kind = type(processor).__name__
        raise TypeError(f"A {kind} has no name: call super().__init__(name) in {kind}.__init__.")
    return name


class ProcessorDef:
    """Makes processors: override `instance`. Wherever one is expected, a class or a function without arguments that
    returns a new processor will do."""

    @abstractmethod
    def instance(self) -> Processor:
        """Return a new processor."""
        raise NotImplementedError(f"{type(self).__name__} must define instance(self).")


ProcessorDefLike = ProcessorDef | Processor | Callable[[], Processor]
"""Creates a processor; an existing one is copied for each task."""


class InMemoryKeyValueStore:
    """A store that a processor makes in its `init`; its entries are kept like those of any other store.

    Serdes of None are the defaults of the configuration.
    """

    def __init__(
        self,
        name: str,
        context: ProcessorContext,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> None:
        """Open the store `name` of the task of `context`."""
        supplier = Stores.in_memory_key_value_store(name)
        self._store = context.open_store(Stores.key_value_store_builder(supplier, key_serde, value_serde))

    def get(self, key: Any) -> Any:
        """Return the value of `key`, None if there is none."""
        return self._store.get(key)

    def put(self, key: Any, value: Any) -> None:
        """Store `value` under `key`; None deletes."""
        self._store.put(key, value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store `value` unless `key` has one; return the value that was there, None if there was none."""
        return self._store.put_if_absent(key, value)

    def delete(self, key: Any) -> Any:
        """Remove `key`; return the value that was there."""
        return self._store.delete(key)

    def range(self, from_key: Any, to_key: Any) -> Iterator[KeyValue]:
        """Return the entries from `from_key` to `to_key`, both inclusive, as `all` does."""
        with self._store.range(from_key, to_key) as entries:
            return iter([KeyValue(key, value) for key, value in entries])

    def all(self) -> Iterator[KeyValue]:
        """Return all entries, each with `key` and `value`, in the byte order of the keys; the store may be changed
        while they are gone through."""
        with self._store.all() as entries:
            return iter([KeyValue(key, value) for key, value in entries])

    def clear(self) -> None:
        """Remove all entries."""
        self._store.clear()

    def close(self) -> None:
        """Do nothing: the task closes its stores."""


class _EmptyStore:
    """Stands for a store while `init` runs only to learn which stores there are."""

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
    """The context of the `init` that runs when the topology is built: notes stores, does nothing else."""

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
        """Gives timestamp and headers to what is forwarded."""

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
    """Runs a processor of the papers as one of today."""

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
    """Return the interval that a call of `schedule` gives in either form."""
    interval = processor if isinstance(processor, int) else interval_ms
    if interval is None:
        raise TypeError("schedule needs an interval in ms: schedule(ms) or schedule(processor, ms).")
    return interval


def _initialise(processor: Processor, context: ProcessorContext) -> None:
    if isinstance(processor, KafkaProcessor):
        processor._context = context
    processor.init(context)


class AdaptedSupplier(ProcessorSupplier):
    """Makes processors of today out of those of the papers, and knows the stores that their `init` makes."""

    def __init__(
        self, make: Callable[[], Processor], key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> None:
        """Call `make` for each processor, and once immediately to learn its stores; serdes: those of `send`."""
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
        """Return the stores that `init` makes."""
        return self._stores


def adapted(
    definition: ProcessorDefLike, key_serde: Serde | None = None, value_serde: Serde | None = None
) -> AdaptedSupplier:
    """Return what makes the processors of `definition` for a topology of today; serdes: those of `send`."""
    if isinstance(definition, ProcessorDef):
        make: Callable[[], Processor] = definition.instance
    else:
        make = partial(_copied, definition) if isinstance(definition, Processor) else definition
    return AdaptedSupplier(make, key_serde, value_serde)


def _copied(processor: Processor) -> Processor:
    """Return a processor like `processor`, which was never initialised, for another task."""
    try:
        return copy.deepcopy(processor)
    except TypeError as error:
        raise StreamsError(
            f"{type(processor).__name__} cannot be copied for each task: {error}. Pass a function that creates one "
            "instead, or create in init what cannot be copied."
        ) from error
