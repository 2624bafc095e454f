"""Columns of structs for objects of record classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest

from penstock.state.query.structs import struct_of

KEY = UUID(int=1)


class Colour(Enum):
    RED = "red"


class Level(Enum):
    HIGH = 1


@dataclass
class Point:
    x: int
    y: float | None = None


@dataclass
class Every:
    text: str = "x"
    flag: bool = True
    data: bytes = b"x"
    key: UUID = KEY
    day: date = date(2020, 1, 2)
    time: datetime = datetime(2020, 1, 2)
    aware: datetime = datetime(2020, 1, 2, 2, tzinfo=timezone(timedelta(hours=2)))
    point: Point = field(default_factory=lambda: Point(1))
    points: list[Point | None] = field(default_factory=lambda: [Point(1, 0.5), None])
    some: tuple[int, ...] = (1, 2)
    named: dict[str, Point] = field(default_factory=lambda: {"p": Point(2)})
    colour: Colour = Colour.RED
    level: Level = Level.HIGH
    either: int | str = 5
    pair: tuple[int, str] = (1, "x")
    absent: int | None = None


@dataclass
class Node:
    value: int
    next: Node | None = None


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str
    odd: int = msgspec.field(name="a`b", default=1)


def array(value: Any) -> Any:
    """Return `value` after the way through its column."""
    struct = struct_of(type(value))
    assert struct is not None
    (found,) = pa.array([struct.convert(value)], struct.type).to_pylist()
    return found


@pytest.mark.parametrize(
    ("name", "ddl", "shown"),
    [
        ("text", "string", "x"),
        ("flag", "boolean", True),
        ("data", "binary", b"x"),
        ("key", "string", str(KEY)),
        ("day", "date", date(2020, 1, 2)),
        ("time", "timestamp", datetime(2020, 1, 2, tzinfo=UTC)),
        ("aware", "timestamp", datetime(2020, 1, 2, tzinfo=UTC)),
        ("point", "struct<`x`: bigint, `y`: double>", {"x": 1, "y": None}),
        ("points", "array<struct<`x`: bigint, `y`: double>>", [{"x": 1, "y": 0.5}, None]),
        ("some", "array<bigint>", [1, 2]),
        ("named", "map<string, struct<`x`: bigint, `y`: double>>", [("p", {"x": 2, "y": None})]),
        ("colour", "string", "red"),
        ("level", "string", "1"),
        ("either", "string", "5"),
        ("pair", "string", '[1,"x"]'),
        ("absent", "bigint", None),
    ],
)
def test_a_field_has_the_type_of_its_annotation(name: str, ddl: str, shown: Any) -> None:
    struct = struct_of(Every)
    assert struct is not None
    assert f"`{name}`: {ddl}" in struct.ddl
    assert array(Every())[name] == shown


def test_a_class_within_itself_is_text() -> None:
    struct = struct_of(Node)
    assert struct is not None
    assert struct.ddl == "struct<`value`: bigint, `next`: string>"
    assert array(Node(1, Node(2))) == {"value": 1, "next": '{"value":2,"next":null}'}


def test_fields_have_their_names_in_json() -> None:
    struct = struct_of(Renamed)
    assert struct is not None
    assert struct.ddl == "struct<`firstName`: string, `a``b`: bigint>"
    assert array(Renamed("Ada")) == {"firstName": "Ada", "a`b": 1}


@pytest.mark.parametrize("kind", [int, dict, list[int], "Point", None])
def test_a_class_without_fields_is_no_struct(kind: Any) -> None:
    assert struct_of(kind) is None
