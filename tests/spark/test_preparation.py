"""What the Spark host refuses before it asks a broker for anything."""

from __future__ import annotations

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
