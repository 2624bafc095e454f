"""A user's store: state in SQLite files, one a task, which other programs can query while the application runs.

Keys and values are texts. What Penstock asks of a store: that it tells its changes (`log_change`), so that they are as
durable as any state, and takes back what was committed (`restore`). The program below counts orders by customer.
"""

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from penstock import KafkaStreams, Processor, ProcessorContext, Record, Serde, Serdes, StoreBuilder, StreamsBuilder
from penstock.errors import InvalidStateStoreError
from penstock.state.custom import CustomStateStore, CustomStoreSupplier, StateStoreContext

Row = tuple[str, str]


class SqliteIterator:
    """Rows that were read, to be closed after use."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows: list[Row] | None = rows[::-1]

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        if not self._open_rows():
            raise StopIteration
        return self._open_rows().pop()

    def peek_next_key(self) -> str:
        return self._open_rows()[-1][0]

    def close(self) -> None:
        self._rows = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_rows(self) -> list[Row]:
        if self._rows is None:
            raise InvalidStateStoreError("The iterator is closed.")
        return self._rows


class SqliteStore:
    """A key-value store of texts in one table of a SQLite file of its task."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self._directory = directory
        self._connection: sqlite3.Connection | None = None

    # ---------- what the task calls

    def init(self, context: StateStoreContext) -> None:
        self._context = context
        self._directory.mkdir(exist_ok=True)
        self._connection = sqlite3.connect(self._directory / f"{context.task_id}.sqlite")
        self._execute(f'CREATE TABLE IF NOT EXISTS "{self.name}" (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID')
        context.register(self.restore)

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self._execute(f'DELETE FROM "{self.name}"')
        for key, value in entries:
            self._execute(f'INSERT INTO "{self.name}" VALUES (?, ?)', key.decode(), value.decode())
        self.flush()

    def flush(self) -> None:
        if self._connection is not None:
            self._connection.commit()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def is_open(self) -> bool:
        return self._connection is not None

    def persistent(self) -> bool:
        return True

    # ---------- what processors call

    def get(self, key: str) -> str | None:
        rows = self._execute(f'SELECT key, value FROM "{self.name}" WHERE key = ?', self._checked(key))
        return rows[0][1] if rows else None

    def put(self, key: str, value: str | None) -> None:
        if value is None:
            self._execute(f'DELETE FROM "{self.name}" WHERE key = ?', self._checked(key))
        else:
            self._execute(f'INSERT OR REPLACE INTO "{self.name}" VALUES (?, ?)', self._checked(key), value)
        self._context.log_change(key.encode(), None if value is None else value.encode())

    def put_if_absent(self, key: str, value: str) -> str | None:
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def put_all(self, entries: Iterable[Row]) -> None:
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: str) -> str | None:
        before = self.get(key)
        self.put(key, None)
        return before

    def range(self, from_key: str | None, to_key: str | None, order: str = "ASC") -> SqliteIterator:
        within = "(?1 IS NULL OR key >= ?1) AND (?2 IS NULL OR key <= ?2)"
        statement = f'SELECT key, value FROM "{self.name}" WHERE {within} ORDER BY key {order}'
        return SqliteIterator(self._execute(statement, from_key, to_key))

    def reverse_range(self, from_key: str | None, to_key: str | None) -> SqliteIterator:
        return self.range(from_key, to_key, "DESC")

    def all(self) -> SqliteIterator:
        return self.range(None, None)

    def reverse_all(self) -> SqliteIterator:
        return self.reverse_range(None, None)

    def prefix_scan(self, prefix: str, prefix_serde: Serde) -> SqliteIterator:
        statement = f'SELECT key, value FROM "{self.name}" WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key'
        return SqliteIterator(self._execute(statement, prefix))

    def approximate_num_entries(self) -> int:
        return len(self._execute(f'SELECT key, value FROM "{self.name}"'))

    def _execute(self, statement: str, *values: str | None) -> list[Row]:
        if self._connection is None:
            raise InvalidStateStoreError(f"Store {self.name!r} is closed.")
        rows: list[Row] = self._connection.execute(statement, values).fetchall()
        return rows

    @staticmethod
    def _checked(key: str) -> str:
        if key is None:
            raise TypeError("The key of a store cannot be None.")
        return key


class SqliteStoreSupplier(CustomStoreSupplier):
    """Makes the store `name` in `directory`, where each task has a file: a file has one writer at a time."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name)
        self.directory = directory

    def get(self) -> CustomStateStore:
        return SqliteStore(self.name, self.directory)


class Orders(Processor):
    """Counts the orders of each customer."""

    def init(self, context: ProcessorContext) -> None:
        self.orders: SqliteStore = context.get_state_store("orders")

    def process(self, record: Record[str, str]) -> None:
        self.orders.put(record.key, str(int(self.orders.get(record.key) or 0) + 1))


config = {
    "application.id": "orders-in-sqlite",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
}
databases = Path(tempfile.gettempdir()) / "orders"

builder = StreamsBuilder()
builder.add_state_store(StoreBuilder(SqliteStoreSupplier("orders", databases)))
builder.stream("orders").process(Orders, "orders")
topology = builder.build()

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
