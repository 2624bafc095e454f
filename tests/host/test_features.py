"""Features of labels from the running application, on each host."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock import Consumed, Materialized, Serdes, Stores, StreamsBuilder, Topology
from penstock.errors import UnknownStateStoreError
from tests.host.support import WITH_PROCESSES, InputRecord, Program, Runner

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker, pytest.mark.partitions(2, 2)]

STRING = Serdes.string()


def versioned_tables(profiles: str, risks: str) -> Topology:
    builder = StreamsBuilder()
    for name, topic in (("profiles", profiles), ("risks", risks)):
        supplier = Stores.persistent_versioned_key_value_store(name, 60_000)
        builder.table(topic, Consumed.with_(STRING, STRING), Materialized.as_(supplier))
    return builder.build()


def test_labels_get_the_values_of_their_times(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    profiles, risks = topics
    program = start(versioned_tables(*topics), runner.config(application))
    runner.write(profiles, [InputRecord(b"a", b"1", 100_000), InputRecord(b"a", b"2", 150_000)])
    runner.write(profiles, [InputRecord(b"b", b"3", 120_000, 1), InputRecord(b"b", None, 160_000, 1)])
    runner.write(risks, [InputRecord(b"a", b"low", 10_000), InputRecord(b"a", b"high", 190_000)])
    program.run_to_end()
    labels = pa.table(
        {
            "customer": ["a", "b", "a", "b", "c", "a"],
            "ts": [149_999, 159_999, 150_000, 160_000, 80_000, 200_000],
        }
    )
    found = program.queries().features(["profiles", "risks"]).as_of(labels, time="ts", key="customer")
    assert found.column("profiles").to_pylist() == ["1", "3", "2", None, None, "2"]
    assert found.column("profiles_expired").to_pylist() == [False, False, False, False, True, False]
    assert found.column("risks").to_pylist() == ["low", None, "low", None, None, "high"]
    assert found.column("risks_expired").to_pylist() == [False, False, False, False, True, False]
    runner.write(profiles, [InputRecord(b"a", b"4", 170_000)])
    program.run_to_end()
    later = program.queries().features(["profiles"]).as_of(labels, time="ts", key="customer")
    assert later.column("profiles").to_pylist() == ["1", "3", "2", None, None, "4"]


def test_an_unknown_store_is_refused(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    program = start(versioned_tables(*topics), runner.config(application))
    with pytest.raises(UnknownStateStoreError, match="scores"):
        program.queries().features(["scores"])
