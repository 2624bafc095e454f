"""The names and shapes of the first papers on Kafka Streams (KIP-28, both drafts), over the public API.

Second draft: `ProcessorDef`, `TopologyBuilder`, `KStreamBuilder`, `KStreamWindowed`, run by `KafkaStreaming`. First
draft: `KafkaProcessor`, `PTopology`, `KStreamTopology`, run by `KafkaProcess` and `KStreamProcess`. Nothing here runs
anything by itself: each shape becomes a `Topology`, which runs wherever one does.

Rules: processors take keys and values, not records; what they forward has the timestamp of the record that is being
processed, or of the punctuation. `init` runs once more when the topology is built, to learn which stores it makes.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import penstock
from penstock import KeyValue, PunctuationType, Record, Stores, StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.dsl.options import Consumed
from penstock.errors import StreamsError
from penstock.processor.api import ProcessorSupplier
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder
from penstock.streams import KafkaStreams
from penstock.windows import JoinWindows, SessionWindows, TimeWindows

DAY_MS = 24 * 60 * 60 * 1000

# ---------------------------------------- processors


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

    def send(self, topic: str, key: Any, value: Any) -> None:
        """Write the pair to any topic."""
        ...

    def schedule(self, processor: Processor | int, interval_ms: int | None = None) -> None:
        """Call the processor's `punctuate` every `interval_ms` of stream time: `schedule(ms)` as the papers' interface
        has it, or `schedule(self, ms)` as their jobs do."""
        ...

    def commit(self) -> None:
        """Ask for a commit soon."""
        ...

    def open_store(self, builder: StoreBuilder) -> Any:
        """Return the store that `builder` describes; what stores made in `init` call."""
        ...


class Processor:
    """A node of one's own: override `process`, and the others where needed."""

    def init(self, context: ProcessorContext) -> None:
        """Prepare: keep the context, make stores, schedule punctuations."""

    @abstractmethod
    def process(self, key: Any, value: Any) -> None:
        """Process one key and value."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, key, value).")

    def punctuate(self, stream_time_ms: int) -> None:
        """Do what is due at the scheduled time; may be defined without the argument."""

    def close(self) -> None:
        """Release what `init` took."""


class KafkaProcessor(Processor):
    """A processor with a name that forwards by itself (first draft)."""

    _context: ProcessorContext

    def __init__(self, name: str) -> None:
        """Name the node `name`."""
        self.name = name

    def forward(self, key: Any, value: Any) -> None:
        """Hand the pair to the chained processors."""
        self._context.forward(key, value)


class ProcessorDef:
    """Makes processors: override `instance`. Wherever one is expected, a class or a function without arguments that
    returns a new processor will do."""

    @abstractmethod
    def instance(self) -> Processor:
        """Return a new processor."""
        raise NotImplementedError(f"{type(self).__name__} must define instance(self).")


ProcessorDefLike = ProcessorDef | Callable[[], Processor]


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

    def delete(self, key: Any) -> Any:
        """Remove `key`; return the value that was there."""
        return self._store.delete(key)

    def all(self) -> Iterator[KeyValue]:
        """Return all entries, each with `key` and `value`, in the byte order of the keys; the store may be changed
        while they are gone through."""
        with self._store.all() as entries:
            return iter([KeyValue(key, value) for key, value in entries])

    def clear(self) -> None:
        """Remove all entries."""
        for entry in self.all():
            self._store.delete(entry.key)

    def close(self) -> None:
        """Do nothing: the task closes its stores."""


class _EmptyStore:
    """Stands for a store while `init` runs only to learn which stores there are."""

    def get(self, key: Any) -> None:
        return None

    def put(self, key: Any, value: Any) -> None:
        return None

    def delete(self, key: Any) -> None:
        return None

    def all(self) -> AbstractContextManager[tuple[()]]:
        return nullcontext(())


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

    def send(self, topic: str, key: Any, value: Any) -> None:
        raise StreamsError(f"Nothing can be sent to {topic!r} in init: there is no record to take the timestamp from.")

    def schedule(self, processor: Processor | int, interval_ms: int | None = None) -> None:
        _interval(processor, interval_ms)

    def commit(self) -> None:
        return None


class _TaskContext:
    """The context of a processor in a task."""

    def __init__(self, context: penstock.ProcessorContext, processor: Processor) -> None:
        self._context = context
        self._processor = processor
        self.template: Record[Any, Any] | None = None
        """Gives timestamp and headers to what is forwarded."""

    @property
    def topic(self) -> str | None:
        metadata = self._context.record_metadata
        return None if metadata is None else metadata.topic

    @property
    def partition(self) -> int:
        metadata = self._context.record_metadata
        return -1 if metadata is None else metadata.partition

    @property
    def offset(self) -> int:
        metadata = self._context.record_metadata
        return -1 if metadata is None else metadata.offset

    def open_store(self, builder: StoreBuilder) -> Any:
        return self._context.get_state_store(builder.name)

    def forward(self, key: Any, value: Any) -> None:
        if self.template is None:
            raise StreamsError("Nothing can be forwarded in init: there is no record to take the timestamp from.")
        self._context.forward(self.template.with_key(key).with_value(value))

    def send(self, topic: str, key: Any, value: Any) -> None:
        self._context.send(topic, key, value)

    def schedule(self, processor: Processor | int, interval_ms: int | None = None) -> None:
        interval = _interval(processor, interval_ms)
        self._context.schedule(interval, PunctuationType.STREAM_TIME, self._punctuate)

    def _punctuate(self, stream_time_ms: int) -> None:
        self.template = Record(None, None, stream_time_ms)
        punctuate: Callable[..., None] = self._processor.punctuate
        punctuate(*(stream_time_ms,) * len(inspect.signature(punctuate).parameters))

    def commit(self) -> None:
        self._context.commit()


class _Adapter(penstock.Processor):
    """Runs a processor of the papers as one of today."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def init(self, context: penstock.ProcessorContext) -> None:
        super().init(context)
        self._own_context = _TaskContext(context, self._processor)
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


class _Supplier(ProcessorSupplier):
    """Makes adapted processors, and knows the stores that their `init` makes."""

    def __init__(self, make: Callable[[], Processor]) -> None:
        discovery = _StoreDiscovery()
        processor = make()
        _initialise(processor, discovery)
        processor.close()
        self._make = make
        self._stores = tuple(discovery.builders)

    def get(self) -> penstock.Processor:
        return _Adapter(self._make())

    def stores(self) -> Sequence[StoreBuilder]:
        return self._stores


def _supplier(definition: ProcessorDefLike) -> _Supplier:
    return _Supplier(definition.instance if isinstance(definition, ProcessorDef) else definition)


# ---------------------------------------- the second draft: builders


class TopologyBuilder:
    """Sources, processors and sinks by name; every method returns the builder (second draft)."""

    def __init__(self) -> None:
        """Start without nodes."""
        self._topology = Topology()

    def add_source(self, name: str, *topics: str) -> TopologyBuilder:
        """Add a source of the records of `topics`."""
        self._topology.add_source(name, *topics)
        return self

    def add_processor(self, name: str, definition: ProcessorDefLike, *parents: str) -> TopologyBuilder:
        """Add a processor that `definition` makes, below `parents`."""
        self._topology.add_processor(name, _supplier(definition), *parents)
        return self

    def add_sink(self, name: str, topic: str, *parents: str) -> TopologyBuilder:
        """Add a sink that writes what `parents` forward to `topic`."""
        self._topology.add_sink(name, topic, *parents)
        return self

    def build(self) -> Topology:
        """Return the topology."""
        return self._topology


class KStreamBuilder:
    """Where streams come from (second draft)."""

    def __init__(self) -> None:
        """Start with an empty program."""
        self._builder = StreamsBuilder()

    def from_(self, topic: str, key_serde: Serde | None = None, value_serde: Serde | None = None) -> KStream:
        """Return the stream of `topic`; serdes of None are the defaults of the configuration."""
        consumed = Consumed.with_(key_serde=key_serde, value_serde=value_serde)
        return KStream(self, self._builder.stream(topic, consumed))

    def build(self) -> Topology:
        """Return the topology of all that was made so far."""
        return self._builder.build()


@dataclass(frozen=True)
class Window:
    """How long a stream's elements wait for those of another stream (the papers' `Window`, for joins).

    span_ms: how far back an element of the other stream looks into this one. retention_ms: how late an element may
    come, counted from its own time, a day where it is not set.
    """

    span_ms: int
    retention_ms: int = DAY_MS

    def until(self, retention_ms: int) -> Window:
        """Return a window with another retention."""
        return replace(self, retention_ms=retention_ms)


W = TypeVar("W", bound=TimeWindows | SessionWindows)


def until(windows: W, retention_ms: int = DAY_MS) -> W:
    """Return `windows` for aggregations with the retention that `Windows.until` gave: what is older is late. Kafka
    Streams of today says the same by a grace period.

    Raises ValueError where the retention is shorter than a window.
    """
    span_ms = windows.inactivity_gap_ms if isinstance(windows, SessionWindows) else windows.size_ms
    if retention_ms < span_ms:
        raise ValueError(f"Window retention time ({retention_ms} ms) cannot be smaller than the window ({span_ms} ms).")
    return replace(windows, grace_period_ms=retention_ms - span_ms)


class KStream:
    """A stream in the shape of the papers; `stream` is the KStream of today behind it."""

    def __init__(self, builder: KStreamBuilder, stream: penstock.KStream) -> None:
        """Wrap `stream`; users call `KStreamBuilder.from_`."""
        self._builder = builder
        self.stream = stream

    def _wrapped(self, stream: penstock.KStream) -> KStream:
        return KStream(self._builder, stream)

    def filter(self, predicate: Callable[[Any, Any], bool]) -> KStream:
        """Return the elements for which `predicate(key, value)` holds."""
        return self._wrapped(self.stream.filter(predicate))

    def map(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> KStream:
        """Return each element as the (key, value) of `mapper(key, value)`."""
        return self._wrapped(self.stream.map(mapper))

    def map_values(self, mapper: Callable[[Any], Any]) -> KStream:
        """Return each element with the value `mapper(value)`."""
        return self._wrapped(self.stream.map_values(mapper))

    def flat_map(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> KStream:
        """Return an element for each (key, value) of `mapper(key, value)`."""
        return self._wrapped(self.stream.flat_map(mapper))

    def flat_map_values(self, mapper: Callable[[Any], Iterable[Any]]) -> KStream:
        """Return an element for each value of `mapper(value)`."""
        return self._wrapped(self.stream.flat_map_values(mapper))

    def with_window(self, window: Window) -> KStreamWindowed:
        """Return the stream with a window, to be joined with another one (the papers: `with`)."""
        return KStreamWindowed(self._builder, self.stream, window)

    def branch(self, *predicates: Callable[[Any, Any], bool]) -> list[KStream]:
        """Return a stream for each of `predicates`, in their order; an element goes to the first that holds."""
        split = self.stream.split()
        for predicate in predicates:
            split = split.branch(predicate)
        return [self._wrapped(branch) for branch in split.no_default_branch().values()]

    def send_to(self, topic: str) -> None:
        """Write the elements to `topic`."""
        self.stream.to(topic)

    def through(self, topic: str) -> KStream:
        """Write the elements to `topic`, which must exist, and return the stream of that topic."""
        self.send_to(topic)
        return self._builder.from_(topic)

    def process(self, definition: ProcessorDefLike) -> KStream:
        """Return what a processor of one's own forwards."""
        return self._wrapped(self.stream.process(_supplier(definition)))


class KStreamWindowed(KStream):
    """A stream with a window; two of them can be joined."""

    def __init__(self, builder: KStreamBuilder, stream: penstock.KStream, window: Window) -> None:
        """Wrap `stream`; users call `KStream.with_window`."""
        super().__init__(builder, stream)
        self._window = window

    def join(self, other: KStreamWindowed, joiner: Callable[[Any, Any], Any]) -> KStream:
        """Return `joiner(value, other_value)` for each pair of elements of one key of which neither is older than the
        window of its stream when the other one comes."""
        windows = self._join_windows(other).before(other._window.span_ms).after(self._window.span_ms)
        return self._wrapped(self.stream.join(other.stream, joiner, windows))

    def join_prior(self, other: KStreamWindowed, joiner: Callable[[Any, Any], Any]) -> KStream:
        """As `join`, for pairs only whose element of `other` is strictly older than that of this stream; raises
        ValueError if the window of `other` is shorter than 1 ms. (At the timestamp 0 there is nothing older; as in all
        joins of Kafka the span then ends at 0, so that equal ones meet.)"""
        windows = self._join_windows(other).before(other._window.span_ms).after(-1)
        return self._wrapped(self.stream.join(other.stream, joiner, windows))

    def _join_windows(self, other: KStreamWindowed) -> JoinWindows:
        spans = self._window.span_ms + other._window.span_ms
        grace_ms = max(min(self._window.retention_ms, other._window.retention_ms) - spans, 0)
        return JoinWindows.of_time_difference_and_grace(spans, grace_ms)


# ---------------------------------------- the first draft: topologies as classes


@dataclass(frozen=True)
class Source:
    """A source of a PTopology, to be named as a parent."""

    name: str


class PTopology:
    """A topology as a class: override `build`, which calls `add_source` and `add_processor` (first draft).

    The class is made anew for each processor of each task, so `build` must do the same each time, and its processors
    cannot share objects.
    """

    def __init__(self) -> None:
        """Start without nodes."""
        self._sources: dict[str, tuple[Serde | None, Serde | None, tuple[str, ...]]] = {}
        self._processors: dict[str, tuple[KafkaProcessor, tuple[str, ...]]] = {}

    @abstractmethod
    def build(self) -> None:
        """Add the sources and processors."""
        raise NotImplementedError(f"{type(self).__name__} must define build(self).")

    def add_source(self, key_serde: Serde | None, value_serde: Serde | None, *topics: str) -> Source:
        """Add a source of `topics`; returns what stands for it as a parent."""
        name = f"source-{len(self._sources)}"
        self._sources[name] = (key_serde, value_serde, topics)
        return Source(name)

    def add_processor(self, processor: KafkaProcessor, *parents: KafkaProcessor | Source) -> None:
        """Add `processor` below `parents`."""
        self._processors[processor.name] = (processor, tuple(parent.name for parent in parents))

    @classmethod
    def topology(cls) -> Topology:
        """Return the topology that `build` makes."""
        plan = cls._built()
        topology = Topology()
        for name, (key_serde, value_serde, topics) in plan._sources.items():
            topology.add_source(name, *topics, key_serde=key_serde, value_serde=value_serde)
        for name, (_, parents) in plan._processors.items():
            topology.add_processor(name, _Supplier(partial(cls._processor, name)), *parents)
        return topology

    @classmethod
    def _processor(cls, name: str) -> KafkaProcessor:
        return cls._built()._processors[name][0]

    @classmethod
    def _built(cls) -> PTopology:
        plan = cls()
        plan.build()
        return plan


class KStreamTopology:
    """A topology of streams as a class: override `build`, which calls `from_` (first draft)."""

    def __init__(self) -> None:
        """Start with an empty program."""
        self._builder = KStreamBuilder()

    @abstractmethod
    def build(self) -> None:
        """Make the streams."""
        raise NotImplementedError(f"{type(self).__name__} must define build(self).")

    def from_(self, key_serde: Serde | None, value_serde: Serde | None, topic: str) -> KStream:
        """Return the stream of `topic`."""
        return self._builder.from_(topic, key_serde, value_serde)

    @classmethod
    def topology(cls) -> Topology:
        """Return the topology that `build` makes."""
        plan = cls()
        plan.build()
        return plan._builder.build()


# ---------------------------------------- runners


class StreamingConfig(StreamsConfig):
    """The configuration (second draft)."""


class ProcessorProperties(StreamsConfig):
    """The configuration (first draft)."""


class _Runner:
    """Starts and shuts down what it was given."""

    def __init__(self, topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> None:
        self._streams = KafkaStreams(topology, config)

    def start(self) -> None:
        """Start in the background; see `KafkaStreams.start`."""
        self._streams.start()

    def shutdown(self) -> None:
        """Commit and stop; see `KafkaStreams.close`."""
        self._streams.close()


class KafkaStreaming(_Runner):
    """Runs what a builder has made (second draft)."""

    def __init__(self, builder: TopologyBuilder | KStreamBuilder, config: StreamsConfig | Mapping[str, Any]) -> None:
        """Build the topology; nothing runs before `start`."""
        super().__init__(builder.build(), config)


class KafkaProcess(_Runner):
    """Runs a topology class (first draft)."""

    def __init__(self, topology: type[PTopology], config: StreamsConfig | Mapping[str, Any]) -> None:
        """Build the topology; nothing runs before `start`."""
        super().__init__(topology.topology(), config)


class KStreamProcess(_Runner):
    """Runs a topology class of streams (first draft)."""

    def __init__(self, topology: type[KStreamTopology], config: StreamsConfig | Mapping[str, Any]) -> None:
        """Build the topology; nothing runs before `start`."""
        super().__init__(topology.topology(), config)
