"""The thread that copies the topics of an application to tables of a lake.

Its failures go to the handler of uncaught exceptions, as those of tasks do. A table or a broker that does not answer is
asked again in the next round.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

import pyarrow as pa

from penstock.client.api import Admin, NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.errors import RetriableError, StreamsError, TopicExistsError
from penstock.extras import load
from penstock.host.commits.purging import RecordPurge
from penstock.host.lake.copying import Clients, TopicCopy
from penstock.lake.columns import LakeColumns
from penstock.lake.tables import Iceberg, LakeConflictError, LakeSink, LakeTable
from penstock.log_context import logged_as
from penstock.plan.internal_topics import RECORDS_STAY
from penstock.serdes.api import inner_serde, or_default
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

_MAX_FAILED_ROUNDS: Final = 5
"""Failed rounds in a row after which the application is asked whether to end."""


class LakeWriter:
    """Copies the topics of the sinks, from its creation to `close`.

    Args:
        sinks: the tables by topic.
        config: of the application.
        is_ended_by: passes an error to the application, and returns whether it has ended the application.

    Raises:
        ConfigError: a package is missing.
        StreamsError: a serde has no columns, a table cannot be opened, or a topic cannot be created.
    """

    def __init__(
        self,
        sinks: Mapping[str, LakeSink],
        config: StreamsConfig,
        is_ended_by: Callable[[BaseException], bool],
    ) -> None:
        self._is_ended_by = is_ended_by
        self._interval_seconds = config["penstock.lake.commit.interval.ms"] / 1000
        self._closing = threading.Event()
        self._failed_rounds = 0
        self._last_error: Exception | None = None
        self._open = ExitStack()
        self._copies = _opened(sinks, config, self._open)
        name = f"penstock-{config['application.id']}-lake"
        run = logged_as(str(config["application.id"]))(self._run)
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy the records that the topics have now, and end; raises the error of the copy."""
        self._closing.set()
        self._thread.join()
        if self._last_error is not None:
            raise self._last_error

    def close(self, timeout_ms: int) -> None:
        """Copy the records that the topics have now, and end within `timeout_ms`; harmless when called again."""
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_ms / 1000)
            if self._thread.is_alive():
                _log.warning("Tables of the lake do not have all records yet; the next start adds them.")

    def _run(self) -> None:
        with self._open:
            while not self._closing.wait(self._interval_seconds):
                if not self._goes_on_after_round():
                    return
            self._last_error = self._round(is_last=True)

    def _goes_on_after_round(self) -> bool:
        error = self._round(is_last=False)
        self._failed_rounds = 0 if error is None else self._failed_rounds + 1
        if error is None or (_is_transient(error) and self._failed_rounds < _MAX_FAILED_ROUNDS):
            return True
        self._failed_rounds = 0
        return not self._is_ended_by(error)

    def _round(self, is_last: bool) -> Exception | None:
        """Copy each topic; return the first error."""
        first: Exception | None = None
        for topic, copy in self._copies.items():
            try:
                copy.run(is_last)
            except Exception as error:
                _log.exception("The copy of %s failed; no record is lost or repeated.", topic)
                first = first or error
        return first


def _is_transient(error: Exception) -> bool:
    """Return whether a later attempt may succeed: errors of brokers and of the libraries of tables."""
    return isinstance(error, RetriableError | LakeConflictError) or not isinstance(error, StreamsError)


def _opened(sinks: Mapping[str, LakeSink], config: StreamsConfig, opened: ExitStack) -> dict[str, TopicCopy]:
    with ExitStack() as opening:
        columns = {topic: _columns(sink, config) for topic, sink in sinks.items()}
        admin, fetcher = ConfluentAdmin(config), ConfluentFetcher(config)
        opening.callback(admin.close)
        opening.callback(fetcher.close)
        _create_topics(sinks, config, admin)
        tables = {topic: _table(sink, columns[topic].schema) for topic, sink in sinks.items()}
        purge_ms, max_bytes = config["repartition.purge.interval.ms"], config["penstock.lake.commit.max.bytes"]
        copies = {}
        for topic in sinks:
            clients = Clients(admin, fetcher, RecordPurge(purge_ms, elapsed_milliseconds))
            copies[topic] = TopicCopy(topic, clients, columns[topic], tables[topic], _joined, max_bytes)
        opened.push(opening.pop_all())
    return copies


def _columns(sink: LakeSink, config: StreamsConfig) -> LakeColumns:
    key_serde, value_serde = config["default.key.serde"], config["default.value.serde"]
    return LakeColumns(
        inner_serde(or_default(sink.key_serde, key_serde, key_serde, value_serde), "key"),
        inner_serde(or_default(sink.value_serde, value_serde, key_serde, value_serde), "value"),
    )


def _table(sink: LakeSink, schema: pa.Schema) -> LakeTable:
    if isinstance(sink.table, Iceberg):
        opened: LakeTable = load("penstock.lake.iceberg", "to_lake", extra="lake").IcebergTable(sink.table, schema)
    else:
        opened = load("penstock.lake.delta", "to_lake", extra="lake").DeltaLakeTable(sink.table, schema)
    return opened


def _create_topics(sinks: Mapping[str, LakeSink], config: StreamsConfig, admin: Admin) -> None:
    known, replication = admin.topics(), config["replication.factor"]
    for topic, sink in sinks.items():
        if topic not in known:
            new = NewTopic(topic, sink.partitions or config["num.partitions"], replication, RECORDS_STAY)
            try:
                admin.create_topics([new])
            except TopicExistsError:  # another instance has created it meanwhile
                continue


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()
