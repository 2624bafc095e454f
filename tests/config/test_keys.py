"""The rows of configuration keys: descriptions, defaults and choices."""

from __future__ import annotations

import re

import pytest

from penstock.config import FORMER_NAMES, StreamsConfig
from penstock.config.constants import ConfigConstants
from penstock.config.keys import KEYS, UPGRADE_FROM


def test_every_row_says_what_it_does_and_its_default_is_valid() -> None:
    for name, row in KEYS.items():
        assert row.importance in ("high", "medium", "low"), name
        assert row.doc.endswith("."), name
        if row.default is not None:
            assert row.parse(name, row.default) == row.default


CHOICES = [
    (key.name, choice)
    for key in KEYS.values()
    if re.fullmatch(r"\S+(, \S+)+", key.parse.takes)
    for choice in key.parse.takes.split(", ")
]


@pytest.mark.parametrize(("key", "choice"), CHOICES)
def test_a_choice_may_be_in_small_letters_or_capitals(key: str, choice: str) -> None:
    for written in (choice.lower(), choice.upper()):
        assert StreamsConfig({key: written}, environment={})[key] == choice


def test_a_key_has_one_row_and_a_deprecated_name_has_none() -> None:
    assert all(name == row.name for name, row in KEYS.items())
    assert KEYS.keys().isdisjoint(FORMER_NAMES)
    assert KEYS.keys() >= set(FORMER_NAMES.values())


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("acceptable.recovery.lag", 10_000),
        ("max.task.idle.ms", 0),
        ("max.warmup.replicas", 2),
        ("metrics.num.samples", 2),
        ("metrics.recording.level", "INFO"),
        ("metrics.sample.window.ms", 30_000),
        ("num.standby.replicas", 0),
        ("num.stream.threads", 1),
        ("poll.ms", 100),
        ("probing.rebalance.interval.ms", 600_000),
        ("replication.factor", -1),
        ("state.cleanup.delay.ms", 600_000),
        ("statestore.cache.max.bytes", 10_485_760),
        ("task.timeout.ms", 300_000),
        ("topology.optimization", "none"),
    ],
)
def test_a_default_is_that_of_kafka(key: str, default: object) -> None:
    assert KEYS[key].default == default


def test_versions_to_upgrade_from_are_those_of_kafka() -> None:
    constants = {key for name, key in vars(ConfigConstants).items() if name.startswith("UPGRADE_FROM_")}
    assert constants - {ConfigConstants.UPGRADE_FROM_CONFIG} <= set(UPGRADE_FROM)
    assert len(UPGRADE_FROM) == len(set(UPGRADE_FROM))
