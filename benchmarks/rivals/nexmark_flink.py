"""Flink SQL (PyFlink): the queries of Nexmark. Runs in an environment of its own until its standard input ends.

    python -m benchmarks.rivals.nexmark_flink CONNECTOR.jar '<json of a Job>'

The statements (`nexmark_flink.sql`) follow those of the Nexmark of Flink's community. A query whose results are updates
writes to the connector `upsert-kafka`, the others to `kafka`. State is in RocksDB. With a number of events, the source
is bounded, so that all windows end.
"""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Final

from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.rivals.nexmark_job import Job, report

CHECKPOINT_MS: Final = 1_000
"""Time between checkpoints, with which Flink commits its transactions."""

_BLOCK: Final = re.compile(r"^-- (?:view (\w+)|(q\d+) (appended|updated): (.*))\n((?:.+\n)+)", re.MULTILINE)
_BID: Final = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING"


def main() -> None:
    """Run the job of the last argument with the connector of the first."""
    job = Job.of_arguments()
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {
        "pipeline.jars": f"file://{sys.argv[1]}",
        "parallelism.default": str(job.partitions),
        "execution.checkpointing.interval": f"{CHECKPOINT_MS} ms",
        "execution.checkpointing.dir": f"file://{job.directory}/checkpoints",
        "restart-strategy.type": "disable",
        "state.backend.type": "rocksdb",
        "table.local-time-zone": "UTC",
    }
    for key, value in settings.items():
        tables.get_config().set(key, value)
    tables.execute_sql(_events(job))
    tables.execute_sql(_side_input(job))
    insert = ""
    for view, query, kind, columns, statement in _BLOCK.findall(Path(__file__).with_suffix(".sql").read_text()):
        if view:
            tables.execute_sql(f"CREATE VIEW {view} AS {statement.rstrip().rstrip(';')}")
        elif query == job.query:
            tables.execute_sql(_appended(job, columns) if kind == "appended" else _updated(job, columns))
            insert = f"INSERT INTO results {statement.rstrip().rstrip(';')}"
    tables.execute_sql(insert).wait()
    if job.events is not None:
        report(job.events)
    threading.Event().wait()


def _events(job: Job) -> str:
    bounded = "" if job.events is None else "'scan.bounded.mode' = 'latest-offset',"
    return f"""
        CREATE TABLE events (
            event_type INT,
            person ROW<id BIGINT, name STRING, city STRING, state STRING>,
            auction ROW<id BIGINT, item_name STRING, date_time BIGINT, expires BIGINT, seller BIGINT, category BIGINT>,
            bid ROW<{_BID}>,
            ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
            WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
        ) WITH (
            'connector' = 'kafka', 'topic' = '{job.source}', 'properties.bootstrap.servers' = '{job.bootstrap}',
            'properties.group.id' = '{job.application}', 'scan.startup.mode' = 'earliest-offset', {bounded}
            'format' = 'json'
        )"""


def _side_input(job: Job) -> str:
    return f"""
        CREATE TABLE side (
            id STRING,
            `value` STRING,
            ts AS TO_TIMESTAMP_LTZ(0, 3),
            WATERMARK FOR ts AS ts,
            PRIMARY KEY (id) NOT ENFORCED
        ) WITH (
            'connector' = 'upsert-kafka', 'topic' = '{job.side}', 'properties.bootstrap.servers' = '{job.bootstrap}',
            'properties.group.id' = '{job.application}-side', 'scan.bounded.mode' = 'latest-offset',
            'key.format' = 'raw', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'
        )"""


def _appended(job: Job, columns: str) -> str:
    return f"CREATE TABLE results ({columns}) WITH ('connector' = 'kafka', 'format' = 'json', {_delivery(job)})"


def _updated(job: Job, columns: str) -> str:
    value = "json" if "," in columns else "raw"  # one column is a number as text
    return f"""
        CREATE TABLE results (row_key STRING, {columns}, PRIMARY KEY (row_key) NOT ENFORCED) WITH (
            'connector' = 'upsert-kafka', 'key.format' = 'raw', 'value.format' = '{value}',
            'value.fields-include' = 'EXCEPT_KEY', {_delivery(job)}
        )"""


def _delivery(job: Job) -> str:
    guarantee = "exactly-once" if job.guarantee == "exactly_once_v2" else "at-least-once"
    return (
        f"'topic' = '{job.sink}', 'properties.bootstrap.servers' = '{job.bootstrap}', "
        f"'sink.delivery-guarantee' = '{guarantee}', 'sink.transactional-id-prefix' = '{job.application}', "
        "'properties.transaction.timeout.ms' = '600000'"
    )


if __name__ == "__main__":
    main()
