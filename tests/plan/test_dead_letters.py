"""An application does not read its own dead letters, unless it is asked to."""

from __future__ import annotations

import logging
import re

import pytest

from penstock.config import StreamsConfig
from penstock.errors import TopologyError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC
from penstock.plan.dead_letters import READ_DEAD_LETTERS, check_dead_letters, unread_dead_letters
from penstock.plan.topology import Topology

DLQ = {DEAD_LETTER_QUEUE_TOPIC: "dlq"}
BY_NAME = Topology().add_source("S", "in", "dlq").build("app")
BY_PATTERN = Topology().add_source("S", pattern=re.compile("d.*")).build("app")


def config(**values: object) -> StreamsConfig:
    return StreamsConfig(values, environment={})


@pytest.mark.parametrize(("values", "unread"), [({}, set()), (DLQ, {"dlq"}), ({**DLQ, READ_DEAD_LETTERS: True}, set())])
def test_the_topic_is_unread_unless_the_user_says_otherwise(values: dict[str, object], unread: set[str]) -> None:
    assert unread_dead_letters(config(**values)) == unread


def test_a_source_that_names_the_topic_is_refused_with_the_way_out() -> None:
    with pytest.raises(TopologyError, match=rf"S \(created at .*\) reads dlq, .*set {READ_DEAD_LETTERS}=true"):
        check_dead_letters(BY_NAME, config(**DLQ))
    check_dead_letters(BY_NAME, config(**DLQ, **{READ_DEAD_LETTERS: True}))
    check_dead_letters(BY_NAME, config())


def test_a_pattern_that_matches_the_topic_is_only_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock.plan.dead_letters"):
        check_dead_letters(BY_PATTERN, config(**DLQ))
        assert "The pattern d.* of S (created at " in caplog.text
        caplog.clear()
        check_dead_letters(Topology().add_source("S", pattern="dl").build("app"), config(**DLQ))
    assert caplog.messages == [], "a match of a part is no match"


def test_the_overrides_of_a_topology_count() -> None:
    overridden = Topology().add_source("S", "dlq").build("app")
    check_dead_letters(overridden, config())
    with pytest.raises(TopologyError):
        check_dead_letters(type(overridden)(overridden.subtopologies, config_overrides=DLQ), config())
