"""Clients of Spark's workers end when they are idle, and the next epoch opens new ones."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from penstock import StreamsBuilder
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import lines
from tests.host.test_topologies import TEXT, TEXT_OUT
from tests.support.open_clients import clients, clients_but, end_idle_clients
from tests.support.waiting import until


def test_epochs_continue_with_new_clients(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics(dict.fromkeys((source, target), 1))
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).to(target, produced=TEXT_OUT)
    gc.collect()
    before = clients()
    query = InlineQuery(builder.build(), spark_runner.config(application, {}), spark_runner.admin)
    end_idle_clients(monkeypatch)
    for number in range(3):
        spark_runner.write(source, lines([str(number)]))
        query.run_to_end()
        assert until(lambda: not clients_but(before))
    assert [record.value for record in spark_runner.read(target)] == [b"0", b"1", b"2"]
    query.close()
