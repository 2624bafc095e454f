"""What the Spark host refuses before it asks a broker for anything."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock import Materialized, Serdes, StreamsBuilder, StreamsConfig
from penstock.dsl.options import Consumed
from penstock.errors import StreamsError
from penstock.host.spark.preparation import prepare

TEXT = Serdes.string()


def test_global_tables_are_refused_by_name() -> None:
    builder = StreamsBuilder()
    builder.global_table("t", Consumed.with_(key_serde=TEXT, value_serde=TEXT), Materialized.as_("everywhere"))
    untouched: Any = None
    with pytest.raises(StreamsError, match=r"does not keep global stores yet: everywhere\. Use a partitioned table"):
        prepare(builder.build().build("app"), StreamsConfig({"application.id": "app"}), untouched, untouched, 1, "")


def test_keys_that_change_nothing_on_spark_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    config = StreamsConfig({"application.id": "app", "max.task.idle.ms": 5, "penstock.execution": "record"})
    builder = StreamsBuilder()
    builder.global_table("t", Consumed.with_(key_serde=TEXT, value_serde=TEXT))
    untouched: Any = None
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with pytest.raises(StreamsError, match="global stores"):  # the first check that needs no broker
                prepare(builder.build().build("app"), config, untouched, untouched, 1, "")
    assert [record.args for record in caplog.records] == [("max.task.idle.ms",)]
