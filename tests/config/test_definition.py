"""Readers of configuration values: what they take, and how they refuse the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.config.definition import boolean, function, handler, mapping, one_of, serde, text, topic_name, whole
from penstock.errors import ConfigError
from penstock.exception_handlers import (
    DeserializationExceptionHandler,
    LogAndContinueExceptionHandler,
    LogAndFailExceptionHandler,
)
from penstock.serdes import Serdes, StringSerde
from penstock.state.rocksdb_options import RocksDBConfigSetter


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()))
def test_a_mapping_is_a_dictionary_or_its_json(value: dict[str, Any]) -> None:
    assert mapping("key", value) == mapping("key", json.dumps(value)) == value


@pytest.mark.parametrize("value", ["secret", '["secret"]', ["secret"], "{", 1])
def test_an_error_about_a_mapping_does_not_show_its_value(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^Invalid value for configuration some\.key: expected a ") as raised:
        mapping("some.key", value)
    assert "secret" not in str(raised.value)


def test_a_serde_may_be_given_as_a_class() -> None:
    assert isinstance(StreamsConfig({"default.key.serde": StringSerde}, {})["default.key.serde"], StringSerde)


def test_a_setter_of_rocksdb_without_one_of_its_methods_is_refused() -> None:
    class WithoutClose(RocksDBConfigSetter):
        def set_config(self, name: str, options: Any, config: StreamsConfig) -> None:
            pass

    class WithoutBase:
        def close(self, name: str, options: Any) -> None:
            pass

    for setter, missing in ((WithoutClose, "close"), (WithoutBase, "set_config"), (WithoutBase(), "set_config")):
        kind = setter if isinstance(setter, type) else type(setter)
        with pytest.raises(ConfigError, match=rf"rocksdb\.config\.setter: {kind.__name__} has no {missing}, which"):
            StreamsConfig({"rocksdb.config.setter": setter}, environment={})
    with pytest.raises(ConfigError, match="expected a class, not the name of one"):
        StreamsConfig({"rocksdb.config.setter": "com.example.Setter"}, environment={})


@given(st.integers(-5, 5), st.integers(-10, 10), st.booleans())
def test_a_whole_number_is_taken_from_its_minimum_on_also_as_text(minimum: int, number: int, as_text: bool) -> None:
    value = str(number) if as_text else number
    if number >= minimum:
        assert whole(minimum)("k", value) == number
    else:
        with pytest.raises(ConfigError, match=rf"for configuration k: expected {minimum} or more\.$"):
            whole(minimum)("k", value)


@pytest.mark.parametrize(
    ("reader", "value", "read"),
    [
        (boolean, True, True),
        (boolean, "False", False),
        (one_of("all", "none"), "ALL", "all"),
        (text, "", ""),
        (topic_name, "a.B_c-1", "a.B_c-1"),
        (function, len, len),
    ],
)
def test_values_are_read(reader: Any, value: Any, read: Any) -> None:
    assert reader("k", value) == read


@pytest.mark.parametrize(
    ("reader", "value", "reason"),
    [
        (whole(0), True, "expected 0 or more"),
        (whole(0), None, "expected a whole number"),
        (boolean, 1, "expected true or false"),
        (one_of("all", "none"), "some", "expected one of all, none"),
        (one_of("all", "none"), None, "expected one of all, none"),
        (text, ["a:1", "b:2"], "expected a string, such as 'a:1,b:2'"),
        (text, [], "expected a string"),
        (topic_name, "a/b", "which no topic may have"),
        (function, "len", "expected a function"),
        (handler(DeserializationExceptionHandler), "Nothing", "expected a DeserializationExceptionHandler, its class"),
        (serde, "text", "expected a Serde, such as Serdes.string(), or one of the names string, integer"),
        (serde, Serdes.string, "such as Serdes.string(): call it, or one of"),
    ],
)
def test_other_values_are_refused_with_their_key(reader: Any, value: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        reader("k", value)
    assert str(refused.value).startswith(f"Invalid value {value!r} for configuration k: ")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["LogAndContinueExceptionHandler", "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler"],
)
def test_a_handler_is_an_object_its_class_or_its_name_as_in_java(name: str) -> None:
    read = handler(DeserializationExceptionHandler)
    own = LogAndFailExceptionHandler()
    assert read("k", own) is own
    assert isinstance(read("k", LogAndFailExceptionHandler), LogAndFailExceptionHandler)
    assert isinstance(read("k", name), LogAndContinueExceptionHandler)


@pytest.mark.parametrize("name", ["string", "org.apache.kafka.common.serialization.Serdes$StringSerde", "StringSerde"])
def test_a_serde_has_its_name_in_python_and_in_java(name: str) -> None:
    assert isinstance(serde("k", name), StringSerde)
