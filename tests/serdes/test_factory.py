"""Names of the built-in serdes: by method, by Python type, and of two functions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import cloudpickle
import pytest

from penstock.record import Headers
from penstock.serdes import Serde, Serdes
from tests.serdes.test_json import Fields, Model, Point


@pytest.mark.parametrize(
    ("type_", "like"),
    [
        (str, Serdes.string()),
        (bytes, Serdes.bytes()),
        (float, Serdes.double()),
        (bool, Serdes.boolean()),
        (UUID, Serdes.uuid()),
        (str | None, Serdes.string()),
        (list[str], Serdes.list(Serdes.string())),
        (list[float | None], Serdes.list(Serdes.double())),
        (None, Serdes.void()),
        (dict[str, Any], Serdes.json()),
        (Point, Serdes.json(Point)),
        (Model, Serdes.json(Model)),
        (Fields, Serdes.json(Fields)),
    ],
)
def test_a_type_has_its_serde(type_: Any, like: Serde) -> None:
    assert type(Serdes.serde_from(type_)) is type(like)


@pytest.mark.parametrize("type_", [int, int | None, list, list[int], str | bytes, Any, object])
def test_a_type_without_its_own_serde_is_refused(type_: Any) -> None:
    with pytest.raises(ValueError, match="Unknown class for built-in serializer"):
        Serdes.serde_from(type_)


def test_functions_with_a_parameter_for_headers_are_given_them() -> None:
    def write(topic: str, value: str, headers: Headers) -> bytes:
        return f"{value}{len(headers)}".encode()

    serde = Serdes.serde_from(write, lambda topic, data: data.decode())
    assert serde.serialize("t", "a", (("h", b"1"),)) == b"a1"
    assert serde.serialize_column("t", ["a", "b"], [(), (("h", b"1"),)]) == [b"a0", b"b1"]
    assert serde.deserialize("t", b"a", (("h", b"1"),)) == "a"
    both = Serdes.serde_from(serde.serialize, serde.deserialize)
    assert both.serialize("t", "a", (("h", b"1"),)) == b"a1"


def test_two_functions_are_a_serde() -> None:
    serde: Serde[int] = Serdes.serde_from(lambda topic, value: str(value).encode(), lambda topic, data: int(data))
    assert serde.deserialize("topic", serde.serialize("topic", 12)) == 12


class Joined:
    """Joins what it is given, to show it."""

    def __call__(self, value: str) -> bytes:
        return value.encode()


def with_third(topic: str, value: str, given: Headers) -> bytes:
    return f"{topic} {value} {len(given)}".encode()


def with_headers_alone(value: str, *, headers: Headers) -> bytes:
    return f"{value} {len(headers)}".encode()


@pytest.mark.parametrize(
    ("serializer", "written"),
    [
        (lambda value: value.upper().encode(), b"VALUE"),
        (lambda topic, value: f"{topic} {value}".encode(), b"topic value"),
        (lambda topic, value, headers: f"{topic} {value} {len(headers)}".encode(), b"topic value 1"),
        (lambda value, headers: f"{value} {len(headers)}".encode(), b"value 1"),
        (lambda *given: " ".join(given).encode(), b"topic value"),
        (lambda value, encoding="utf-8": value.encode(encoding), b"value"),
        (lambda topic="", value="": f"{topic} {value}".encode(), b"topic value"),
        (with_third, b"topic value 1"),
        (with_headers_alone, b"value 1"),
        (str.encode, b"value"),
        (Joined(), b"value"),
    ],
)
def test_a_serde_of_functions_calls_them_by_their_parameters(serializer: Any, written: bytes) -> None:
    serde: Serde[Any] = Serdes.serde_from(serializer, int)
    for copy in (serde, cloudpickle.loads(cloudpickle.dumps(serde))):
        assert copy.serialize("topic", "value", (("h", b""),)) == written
        assert copy.serialize_column("topic", ["value"], [(("h", b""),)]) == [written]
        assert copy.deserialize("topic", b"12") == 12


@pytest.mark.parametrize(
    ("serializer", "deserializer", "told"),
    [
        (lambda: b"", int, "The serializer must be a function serializer(value), serializer(topic, value) or"),
        (str.encode, lambda a, b, c, d: a, "deserializer(topic, data, headers); "),
        (lambda topic, value, *, limit: value, int, "(topic, value, limit) is none of them"),
        ("encode", int, "Expected a function serializer(value)"),
        (str.encode, None, "write serde_from(serializer, deserializer)"),
    ],
)
def test_functions_that_cannot_be_called_are_refused_where_they_are_given(
    serializer: Any, deserializer: Any, told: str
) -> None:
    with pytest.raises(TypeError) as refused:
        Serdes.serde_from(serializer, deserializer)
    assert told in str(refused.value)
