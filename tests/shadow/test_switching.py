"""What a switch refuses before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Backoff, Consumed, Park, Produced, Serdes, StreamsBuilder, Topology
from penstock.errors import ConfigError, StreamsError
from penstock.shadow import Counts, SwitchCondition, TopicComparison, VersionComparison, switch

TEXT, TEXT_OUT = Consumed.with_(Serdes.string(), Serdes.string()), Produced.with_(Serdes.string(), Serdes.string())


def changing(change: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("orders", TEXT).map_values(change).to("bills", TEXT_OUT)
    return builder.build()


def received() -> Topology:
    builder = StreamsBuilder()
    builder.stream("orders", TEXT).to_spark(lambda frame, number: None, TEXT_OUT.with_name("received"))
    return builder.build()


def parking() -> Topology:
    builder = StreamsBuilder()
    builder.stream("orders", TEXT).map_values(
        str.title, on_error=Park(backoff=Backoff(timedelta(seconds=1)), attempts=2), named="parking"
    ).to("bills", TEXT_OUT)
    return builder.build()


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """The configuration of an application whose brokers do not answer."""
    return {"application.id": "bills", "bootstrap.servers": "localhost:1", "state.dir": str(tmp_path)}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"penstock.host": "threads"}, {}, "bills runs on threads.*Switch on Spark"),
        ({}, {"application.id": "other"}, "has the application.id other .* it needs that application.id"),
        ({}, {"penstock.checkpoint.dir": "/elsewhere"}, "and the checkpoint /elsewhere.* to take over from bills"),
        ({"penstock.changelog.topics": True}, {}, "The old version of bills sets penstock.changelog.topics"),
        ({}, {"penstock.changelog.topics": True}, "The new version of bills sets penstock.changelog.topics"),
    ],
)
def test_configurations_without_a_common_state_are_refused(
    config: dict[str, Any], old: Mapping[str, Any], new: Mapping[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        switch((changing(str.upper), {**config, **old}), (changing(str.lower), {**config, **new}))


def test_a_checkpoint_without_a_lock_is_refused(config: dict[str, Any]) -> None:
    remote = config | {"penstock.checkpoint.dir": "mock://bucket/bills"}
    with pytest.raises(ConfigError, match="mock://bucket/bills is not in a file system of this machine"):
        switch((changing(str.upper), remote), (changing(str.lower), remote))


@pytest.mark.parametrize(
    ("program", "expected"), [(received, "the function of the DataFrame"), (parking, "the requests about parking")]
)
def test_programs_with_state_outside_of_a_shadow_are_refused(
    config: dict[str, Any], program: Any, expected: str
) -> None:
    upper = changing(str.upper), config
    with pytest.raises(StreamsError, match=f"because of the changed one:\n.*{expected}"):
        switch(upper, (program(), config))
    with pytest.raises(StreamsError, match=f"because of the present one:\n.*{expected}"):
        switch((program(), config), upper)


def test_the_same_program_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(StreamsError, match="Both programs of bills are the same"):
        switch((changing(str.upper), config), (changing(str.upper), config))


def test_a_condition_holds_for_equal_versions() -> None:
    def comparison(counts: Counts, other_final_values: int) -> VersionComparison:
        topic = TopicComparison("bills", (), (), counts, other_final_values, ())
        return VersionComparison("bills", "now", (topic,), (), {})

    equal, other = comparison(Counts(equal=1), 0), comparison(Counts(equal=1, only_new=1), 0)
    different = comparison(Counts(different=1), 1)
    held = {each: [each.holds(found) for found in (equal, other, different)] for each in SwitchCondition}
    assert held == {SwitchCondition.EQUAL: [True, False, False], SwitchCondition.FINAL_VALUES: [True, True, False]}
