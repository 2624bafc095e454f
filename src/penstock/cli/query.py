"""`penstock query FILE [STORE [KEY]]`: what the stores of an application hold, as of its newest commit."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

import orjson
import typer
from rich.table import Table

from penstock.cli.common import Settings, err, out, parsed_settings
from penstock.cli.program import load_program
from penstock.cli.run import File
from penstock.cli.serdes import NULL, parsed
from penstock.config import StreamsConfig
from penstock.errors import InvalidStateStoreError, StreamsError
from penstock.host.api import StateQueries
from penstock.host.open import open_state
from penstock.record import ValueAndTimestamp
from penstock.state.api import StoreBuilder
from penstock.state.query.queries import MultiVersionedKeyQuery
from penstock.state.query.queryable import QueryableStoreTypes, StoreQueryParameters
from penstock.state.query.request import StateQueryRequest
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    LruMapBytesStoreSupplier,
    SessionBytesStoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock.state.versioned_api import VersionedRecord
from penstock.task.standby_task import empty_store
from penstock.windows import LONG_MAX, Windowed

DEFAULT_LIMIT = 100

_Entry = dict[str, Any]
"""What is shown of an entry: key, value, and the times that it has (ms)."""

Store = Annotated[str | None, typer.Argument(metavar="STORE", help="A store; without one, lists the stores.")]
Key = Annotated[str | None, typer.Argument(metavar="KEY", help="A key, as text; without one, shows all entries.")]


def query(
    file: File,
    store: Store = None,
    key: Key = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")] = None,
    from_time: Annotated[int, typer.Option("--from-time", min=0, help="Windows and versions from this time (ms).")] = 0,
    to_time: Annotated[
        int, typer.Option("--to-time", min=0, help="Windows and versions up to this time (ms).")
    ] = LONG_MAX,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many entries.")] = DEFAULT_LIMIT,
    json: Annotated[bool, typer.Option("--json", help="Show one line of JSON per entry, with its times.")] = False,
    config: Settings = None,
) -> None:
    """Show what a store of a program holds: a line an entry, key and value. It is read from the checkpoint, as of the
    newest commit, whether the program runs or not."""
    program = load_program(file)
    settings = program.configured(parsed_settings(config))
    with open_state(program.topology, settings) as state:
        staleness = state.staleness()
        if store is None:
            _list(state)
        else:
            builder = state.stores().get(store)
            parameters = StoreQueryParameters.from_name_and_type(store, _type_of(builder)).with_partition(partition)
            entries = _Entries(state, parameters, builder, settings, from_time, to_time).of(key)
            _show(entries, limit, _json_line if json else _line)
    if staleness.age_ms is None:
        err.print("The application has not committed an epoch yet, so its stores are empty.")
    else:
        err.print(f"As of epoch {staleness.epoch} (committed {staleness.age_ms / 1000:.1f} s ago).")


def _list(state: StateQueries) -> None:
    table = Table("store", "kind", box=None, pad_edge=False)
    for name, builder in sorted(state.stores().items()):
        table.add_row(name, builder.kind.replace("_", " "))
    out.print(table)


def _type_of(builder: StoreBuilder | None) -> Any:
    """Return the type to ask for; for a store that is not there it does not matter."""
    timestamped = builder is not None and builder.timestamped
    match None if builder is None else builder.supplier:
        case WindowBytesStoreSupplier():
            return QueryableStoreTypes.timestamped_window_store() if timestamped else QueryableStoreTypes.window_store()
        case SessionBytesStoreSupplier():
            return QueryableStoreTypes.session_store()
        case _ if timestamped:
            return QueryableStoreTypes.timestamped_key_value_store()
        case _:
            return QueryableStoreTypes.key_value_store()


class _Entries:
    """Reads the entries of one store."""

    def __init__(
        self,
        state: StateQueries,
        parameters: StoreQueryParameters,
        builder: StoreBuilder | None,
        config: StreamsConfig,
        from_time: int,
        to_time: int,
    ) -> None:
        self._state = state
        self._parameters = parameters
        self._builder = builder
        self._config = config
        self._times = from_time, to_time

    def of(self, text: str | None) -> Iterator[_Entry]:
        """Yield the entries of the key that `text` stands for, of all keys for None."""
        store = self._state.store(self._parameters)
        assert self._builder is not None  # or `store` has refused it
        match self._builder.supplier:
            case KeyValueBytesStoreSupplier() | LruMapBytesStoreSupplier():
                yield from _pairs(store.all()) if text is None else self._of_key(store, self._key(text))
            case WindowBytesStoreSupplier():
                yield from self._windows(store, text)
            case SessionBytesStoreSupplier():
                found = store.fetch_range(None, None) if text is None else store.fetch(self._key(text))
                yield from _pairs(found)
            case VersionedBytesStoreSupplier():
                if text is None:
                    raise StreamsError(f"Store {store.name} keeps versions: name a key to see its versions.")
                yield from self._versions(self._key(text))
            case _:
                raise InvalidStateStoreError(
                    f"Store {store.name} is a {self._builder.kind} store, which cannot be shown here."
                )

    def _key(self, text: str) -> Any:
        assert self._builder is not None
        store: Any = empty_store(self._builder, self._config)
        return parsed(store.key_serde, f"store {store.name}", text)

    def _of_key(self, store: Any, key: Any) -> Iterator[_Entry]:
        yield _entry(key, store.get(key))

    def _windows(self, store: Any, text: str | None) -> Iterator[_Entry]:
        if text is None:
            yield from _pairs(store.fetch_all(*self._times))
            return
        key = self._key(text)
        for start, value in store.fetch(key, *self._times):
            yield {"window_start": start, **_entry(key, value)}

    def _versions(self, key: Any) -> Iterator[_Entry]:
        from_time, to_time = self._times
        versions = MultiVersionedKeyQuery.with_key(key).from_time(from_time).to_time(to_time)
        request = StateQueryRequest.in_store(self._parameters.store_name).with_query(versions)
        if self._parameters.partition is not None:
            request = request.with_partitions([self._parameters.partition])
        for result in self._state.query(request).partition_results.values():
            for version in result.result:
                yield _entry(key, version)


def _pairs(entries: Iterable[tuple[Any, Any]]) -> Iterator[_Entry]:
    for key, value in entries:
        yield _entry(key, value)


def _entry(key: Any, value: Any) -> _Entry:
    windows = {}
    if isinstance(key, Windowed):
        windows = {"window_start": key.window.start, "window_end": key.window.end}
        key = key.key
    match value:
        case VersionedRecord():
            ended = {} if value.valid_to is None else {"valid_to": value.valid_to}
            return {"key": key, "value": value.value, "timestamp": value.timestamp, **ended}
        case ValueAndTimestamp():
            return {**windows, "key": key, "value": value.value, "timestamp": value.timestamp}
        case _:
            return {**windows, "key": key, "value": value}


def _show(entries: Iterator[_Entry], limit: int, line: Callable[[Mapping[str, Any]], str]) -> None:
    shown = 0
    for entry in islice(entries, limit):
        sys.stdout.write(line(entry) + "\n")
        shown += 1
    sys.stdout.flush()
    if shown == limit and next(entries, None) is not None:
        err.print(f"There are more than {limit} entries; --limit shows more.")


def _line(entry: Mapping[str, Any]) -> str:
    times = [str(entry[name]) for name in ("window_start", "window_end", "valid_to") if name in entry]
    return "\t".join([_text(entry["key"]), *times, _text(entry["value"])])


def _text(value: Any) -> str:
    if value is None:
        return NULL
    return value if isinstance(value, str) else orjson.dumps(value, default=_plain).decode()


def _json_line(entry: Mapping[str, Any]) -> str:
    return orjson.dumps(entry, default=_plain).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else repr(value)
