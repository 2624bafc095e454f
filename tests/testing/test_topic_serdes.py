"""Checks of a test's serdes for a topic."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from penstock import Consumed, Produced, Serdes, StreamsBuilder, Topology
from penstock.serdes import Serde
from penstock.testing import TopologyTestDriver

STRING, LONG = Serdes.string(), Serdes.long()


def topology() -> Topology:
    """Return a copy of topic in to topic out, from and to strings and longs."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(STRING, LONG)).to("out", Produced.with_(STRING, LONG))
    return builder.build()


@pytest.mark.parametrize("topic", [None, "in"])
def test_topics_and_serdes_must_be_given(topic: str | None) -> None:
    serde: Any = None if topic is not None else STRING
    with TopologyTestDriver(topology()) as driver:
        with pytest.raises(TypeError, match="cannot be None"):
            driver.create_input_topic(topic, serde, STRING)  # type: ignore[arg-type]  # the error is what is tested
        with pytest.raises(TypeError, match="cannot be None"):
            driver.create_output_topic(topic, STRING, serde)  # type: ignore[arg-type]  # the error is what is tested


def warnings(driver: TopologyTestDriver, value_serde: Serde, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about topics in and out with the given serde of values, and forget them."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "penstock.testing.topic_serdes"):
        driver.create_input_topic("in", STRING, value_serde)
        driver.create_output_topic("out", STRING, value_serde)
    return caplog.messages


@pytest.mark.parametrize("value_serde", [Serdes.json(), STRING, Serdes.integer()])
def test_serdes_that_misread_numbers_are_warned_of(value_serde: Serde, caplog: pytest.LogCaptureFixture) -> None:
    with TopologyTestDriver(topology()) as driver:
        found = warnings(driver, value_serde, caplog)
    expected = r"test_topic_serdes.py:\d+ uses {} for the values of topic {}, and KSTREAM-{}.* uses LongSerde"
    for message, place in zip(found, [("in", "SOURCE"), ("out", "SINK")], strict=True):
        assert re.search(expected.format(type(value_serde).__name__, *place), message)


def test_equal_serdes_and_raw_bytes_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with TopologyTestDriver(topology()) as driver:
        assert warnings(driver, LONG, caplog) == []
        assert warnings(driver, Serdes.bytes(), caplog) == []


def test_a_node_without_serdes_has_those_of_the_configuration(caplog: pytest.LogCaptureFixture) -> None:
    defaults = {"default.key.serde": STRING, "default.value.serde": STRING}
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with TopologyTestDriver(builder.build(), defaults) as driver:
        assert len(warnings(driver, LONG, caplog)) == 2
        assert warnings(driver, STRING, caplog) == []


def test_another_object_is_refused_with_its_argument() -> None:
    wrong: Any = str
    with TopologyTestDriver(topology()) as driver:
        with pytest.raises(TypeError, match=r"Expected a Serde as key_serde of topic 'in', got <class 'str'>"):
            driver.create_input_topic("in", wrong, LONG)
        with pytest.raises(TypeError, match=r"Expected a Serde as value_serde of topic 'out', got <class 'str'>"):
            driver.create_output_topic("out", STRING, wrong)
