"""The reference processors of FORMAT.md section 8.1 and their suppliers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock import (
    AggregationWithHeaders,
    Headers,
    Processor,
    ProcessorContext,
    ProcessorSupplier,
    PunctuationType,
    Record,
    RecordMetadata,
    SessionWindow,
    StoreBuilder,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from tests.oracle.interpreter import store_commands
from tests.oracle.interpreter.functions import refused
from tests.oracle.interpreter.stores import is_timestamped, plain
from tests.oracle.interpreter.values import text
from tests.oracle.interpreter.vocabulary import Words

AnyRecord = Record[Any, Any]
Body = Callable[[ProcessorContext, AnyRecord], None]

PUNCTUATION_TYPES = {"stream_time": PunctuationType.STREAM_TIME, "wall_clock": PunctuationType.WALL_CLOCK_TIME}


class Each(Processor):
    """Runs one function for each record."""

    def __init__(self, body: Body) -> None:
        self.body = body

    def process(self, record: AnyRecord) -> None:
        """Hand the record to the function."""
        self.body(self.context, record)


class FlushStore(Processor):
    """Keeps the last value of each key; each punctuation forwards and deletes all of them."""

    def __init__(self, store: str, type_: str, interval: int) -> None:
        self._store, self._type, self._interval = store, type_, interval

    def init(self, context: ProcessorContext) -> None:
        """Schedule the punctuation."""
        super().init(context)
        context.schedule(self._interval, PUNCTUATION_TYPES[self._type], self._punctuate)

    def _punctuate(self, now: int) -> None:
        store = self.context.get_state_store(self._store)
        with store.all() as entries:
            content = list(entries)
        for key, value in content:
            store.delete(key)
            self.context.forward(Record(key, value, now))

    def process(self, record: AnyRecord) -> None:
        """Store the value unless the key is null."""
        if record.key is not None:
            self.context.get_state_store(self._store).put(record.key, record.value)


class PunctuateMarker(Processor):
    """Forwards each record, and at each punctuation a record that shows the time it was given."""

    def __init__(self, key: str, type_: str, interval: int, start: int | None = None) -> None:
        self._key, self._type, self._interval, self._start = key, type_, interval, start

    def init(self, context: ProcessorContext) -> None:
        """Schedule the punctuation, anchored where a start is given."""
        super().init(context)
        context.schedule(self._interval, PUNCTUATION_TYPES[self._type], self._punctuate, start_time_ms=self._start)

    def _punctuate(self, now: int) -> None:
        self.context.forward(Record(self._key, f"{now} metadata={_place(self.context.record_metadata)}", now))

    def process(self, record: AnyRecord) -> None:
        """Forward the record."""
        self.context.forward(record)


class ScheduleCancel(Processor):
    """A punctuation that cancels itself after `limit` firings; a record with the value "again" schedules it again."""

    def __init__(self, type_: str, interval: int, limit: int) -> None:
        self._type, self._interval, self._limit = type_, interval, limit

    def init(self, context: ProcessorContext) -> None:
        """Schedule the punctuation."""
        super().init(context)
        self._schedule()

    def _schedule(self) -> None:
        self._firings = 0
        self._scheduled = self.context.schedule(self._interval, PUNCTUATION_TYPES[self._type], self._punctuate)

    def _punctuate(self, now: int) -> None:
        self._firings += 1
        self.context.forward(Record("tick", text(self._firings), now))
        if self._firings >= self._limit:
            self._scheduled.cancel()

    def process(self, record: AnyRecord) -> None:
        """Schedule again if the record asks for it, and forward it."""
        if record.value == "again":
            self._scheduled.cancel()
            self._schedule()
        self.context.forward(record)


class PunctuateBoth(Processor):
    """Punctuations of both types at one interval, that of wall-clock time scheduled first."""

    def __init__(self, interval: int) -> None:
        self._interval = interval

    def init(self, context: ProcessorContext) -> None:
        """Schedule both."""
        super().init(context)
        for name in ("wall_clock", "stream_time"):
            context.schedule(self._interval, PUNCTUATION_TYPES[name], partial(self._punctuate, name))

    def _punctuate(self, name: str, now: int) -> None:
        self.context.forward(Record(name, f"{now} {_both_times(self.context)}", now))

    def process(self, record: AnyRecord) -> None:
        """Forward the record."""
        self.context.forward(record)


class PunctuateRefuse(Processor):
    """Counts the firings of a punctuation; the one with number `refused_at` fails after it has forwarded."""

    def __init__(self, type_: str, interval: int, refused_at: int) -> None:
        self._type, self._interval, self._refused_at = type_, interval, refused_at

    def init(self, context: ProcessorContext) -> None:
        """Schedule the punctuation."""
        super().init(context)
        self._firings = 0
        context.schedule(self._interval, PUNCTUATION_TYPES[self._type], self._punctuate)

    def _punctuate(self, now: int) -> None:
        self._firings += 1
        self.context.forward(Record("tick", text(self._firings), now))
        if self._firings == self._refused_at:
            raise refused(self._firings)

    def process(self, record: AnyRecord) -> None:
        """Forward the record."""
        self.context.forward(record)


def _place(metadata: RecordMetadata | None) -> str:
    return "none" if metadata is None else f"{text(metadata.topic)}/{metadata.partition}/{metadata.offset}"


def _each(body: Body) -> Callable[[], Processor]:
    return lambda: Each(body)


def _twice(context: ProcessorContext, record: AnyRecord) -> None:
    context.forward(record)
    context.forward(record.with_value(text(record.value) + "2"))


def _refuse(part: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        if part in text(record.value):
            raise refused(record.value)
        context.forward(record)

    return _each(body)


def _stamp(step: int, name: str, content: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        headers = (*record.headers, (name, content.encode()))
        context.forward(record.with_timestamp(record.timestamp + step).with_headers(headers))

    return _each(body)


def _metadata(context: ProcessorContext, record: AnyRecord) -> None:
    context.forward(record.with_value(f"{_place(context.record_metadata)}@{record.timestamp}"))


def _times(context: ProcessorContext, record: AnyRecord) -> None:
    context.forward(record.with_value(f"{text(record.value)} {_both_times(context)}"))


def _both_times(context: ProcessorContext) -> str:
    return f"stream={context.current_stream_time_ms()} system={context.current_system_time_ms()}"


def _show_headers(context: ProcessorContext, record: AnyRecord) -> None:
    context.forward(record.with_value(f"{text(record.value)}{_headers(record.headers)}"))


def _headers(headers: Headers) -> str:
    return f"[{','.join(f'{name}={_decoded(value)}' for name, value in headers)}]"


def _decoded(value: bytes | None) -> str:
    return "null" if value is None else value.decode()


def _catch(context: ProcessorContext, record: AnyRecord) -> None:
    try:
        context.forward(record)
    except Exception:
        context.forward(record.with_value("caught"))


def _found(entry: Any) -> str:
    match entry:
        case ValueTimestampHeaders(value, timestamp):
            return f"{text(value)}@{timestamp}{_headers(entry.headers)}"
        case ValueAndTimestamp(value, timestamp):
            return f"{text(value)}@{timestamp}"
        case AggregationWithHeaders(aggregation, headers):
            return f"{text(aggregation)}{_headers(headers)}"
        case _:
            return text(entry)


def _timestamped_lookup(store_name: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        found = None if record.key is None else context.get_state_store(store_name).get(record.key)
        context.forward(record.with_value(f"{text(record.value)}/{_found(found)}"))

    return _each(body)


def _window_lookup(store_name: str, time_from: int, time_to: int) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        shown = [text(record.value)]
        if record.key is not None:
            with context.get_state_store(store_name).fetch(record.key, time_from, time_to) as entries:
                shown += [f"{start}={_found(entry)}" for start, entry in entries]
        context.forward(record.with_value(";".join(shown)))

    return _each(body)


def _session_lookup(store_name: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        shown = [text(record.value)]
        if record.key is not None:
            with context.get_state_store(store_name).fetch(record.key) as entries:
                shown += [f"{text(session)}={_found(value)}" for session, value in entries]
        context.forward(record.with_value(";".join(shown)))

    return _each(body)


def _versioned_lookup(store_name: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        shown = "none"
        if record.key is not None:
            store = context.get_state_store(store_name)
            versions = store.get(record.key), store.get(record.key, record.timestamp)
            shown = ",".join(map(store_commands.version, versions))
        context.forward(record.with_value(f"{text(record.value)}/{shown}"))

    return _each(body)


def _dedupe(store_name: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        store = context.get_state_store(store_name)
        if record.key is None or text(record.value) == store.get(record.key):
            return
        store.put(record.key, text(record.value))
        context.forward(record)

    return _each(body)


def _running_count(store_name: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        if record.key is None:
            return
        store = context.get_state_store(store_name)
        count = (plain(store.get(record.key)) or 0) + 1
        store.put(record.key, ValueAndTimestamp(count, record.timestamp) if is_timestamped(store) else count)
        context.forward(record.with_value(count))

    return _each(body)


def _table_lookup(store_name: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        store = context.get_state_store(store_name)
        found = None if record.value is None else plain(store.get(record.value))
        context.forward(record.with_value(f"{text(record.value)}={text(found)}"))

    return _each(body)


def _read_store(store_name: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        found = plain(context.get_state_store(store_name).get(record.key))
        context.forward(record.with_value(f"{text(record.value)}/{text(found)}"))

    return _each(body)


def _global_writer(store_name: str, prefix: str) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        if record.key is None:
            return
        store = context.get_state_store(store_name)
        value = None if record.value is None else prefix + text(record.value)
        timed = value is not None and is_timestamped(store)
        store.put(record.key, ValueAndTimestamp(value, record.timestamp) if timed else value)

    return _each(body)


def _window_counter(store_name: str, size: int) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        store = context.get_state_store(store_name)
        start = record.timestamp - record.timestamp % size
        count = (store.fetch(record.key, start) or 0) + 1
        store.put(record.key, count, start)
        context.forward(record.with_value(f"{start}:{count}"))

    return _each(body)


def _session_collector(store_name: str, gap: int) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        store = context.get_state_store(store_name)
        start = end = record.timestamp
        collected = text(record.value)
        with store.find_sessions(record.key, max(0, start - gap), end + gap) as sessions:
            found = list(sessions)
        for key, value in found:
            start, end = min(start, key.window.start), max(end, key.window.end)
            collected = f"{text(value)},{collected}"
        for key, _ in found:
            store.remove(key)
        store.put(Windowed(record.key, SessionWindow(start, end)), collected)
        context.forward(record.with_value(f"{start}-{end}:{collected}"))

    return _each(body)


def _versioned_put_get(store_name: str, back: int) -> Callable[[], Processor]:
    def body(context: ProcessorContext, record: AnyRecord) -> None:
        store = context.get_state_store(store_name)
        put = store_commands.put_result(store.put(record.key, record.value, record.timestamp))
        latest = store_commands.version(store.get(record.key))
        before = store_commands.version(store.get(record.key, record.timestamp - back))
        context.forward(record.with_value(f"put={put} latest={latest} before={before}"))

    return _each(body)


def _commands(run: Callable[[Any, Any, str], str]) -> Callable[[str], Callable[[], Processor]]:
    def maker(store_name: str) -> Callable[[], Processor]:
        def body(context: ProcessorContext, record: AnyRecord) -> None:
            answer = run(context.get_state_store(store_name), record.key, text(record.value))
            context.forward(record.with_value(answer))

        return _each(body)

    return maker


# Each maker returns a factory of processors, since every task needs its own.
PROCESSORS = Words(
    "processor",
    {
        "pass": lambda: _each(lambda context, record: context.forward(record)),
        "drop": lambda: _each(lambda context, record: None),
        "twice": lambda: _each(_twice),
        "append": lambda a: _each(lambda context, record: context.forward(record.with_value(text(record.value) + a))),
        "swap": lambda: _each(
            lambda context, record: context.forward(record.with_key(record.value).with_value(record.key))
        ),
        "refuse": _refuse,
        "route": lambda a, yes, no: _each(
            lambda context, record: context.forward(record, yes if a in text(record.value) else no)
        ),
        "stamp": _stamp,
        "clear_headers": lambda: _each(lambda context, record: context.forward(record.with_headers(()))),
        "metadata": lambda: _each(_metadata),
        "times": lambda: _each(_times),
        "show_headers": lambda: _each(_show_headers),
        "catch": lambda: _each(_catch),
        "punctuate_both": lambda *arguments: lambda: PunctuateBoth(*arguments),
        "punctuate_refuse": lambda *arguments: lambda: PunctuateRefuse(*arguments),
        "timestamped_lookup": _timestamped_lookup,
        "window_lookup": _window_lookup,
        "session_lookup": _session_lookup,
        "versioned_lookup": _versioned_lookup,
        "dedupe": _dedupe,
        "running_count": _running_count,
        "table_lookup": _table_lookup,
        "read_store": _read_store,
        "global_writer": _global_writer,
        "flush_store": lambda *arguments: lambda: FlushStore(*arguments),
        "punctuate_marker": lambda *arguments: lambda: PunctuateMarker(*arguments),
        "schedule_cancel": lambda *arguments: lambda: ScheduleCancel(*arguments),
        "window_counter": _window_counter,
        "session_collector": _session_collector,
        "versioned_put_get": _versioned_put_get,
        "key_value_commands": _commands(store_commands.key_value),
        "window_commands": _commands(store_commands.window),
        "session_commands": _commands(store_commands.session),
        "versioned_commands": _commands(store_commands.versioned),
    },
)


class Supplier(ProcessorSupplier):
    """Makes processors of a case and brings the stores that the case gives them."""

    def __init__(self, factory: Callable[[], Processor], owned_stores: Sequence[StoreBuilder]) -> None:
        self._factory = factory
        self._owned_stores = owned_stores

    def get(self) -> Processor:
        """Return a new processor."""
        return self._factory()

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores of the case's `owned_stores`."""
        return self._owned_stores
