"""Record classes: the names of their fields, which of them are models, and what msgspec cannot read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from penstock.serdes.objects import check_readable, field_names, is_model, is_written_by_alias, name_of


@dataclass
class Node:
    """A class that refers to itself."""

    label: str
    next: Node | None = None


class Struct(msgspec.Struct, rename="camel"):
    first_name: str


class Model(pydantic.BaseModel):
    first_name: str = pydantic.Field(alias="firstName")
    age: int = 0


class ForWritingAlone(pydantic.BaseModel):
    first_name: str = pydantic.Field(serialization_alias="firstName")


class Pair(NamedTuple):
    x: int


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Node, {"label": "label", "next": "next"}),
        (Struct, {"first_name": "firstName"}),
        (Model, {"first_name": "firstName", "age": "age"}),
        (ForWritingAlone, {"first_name": "first_name"}),
        (Pair, None),
        (dict, None),
    ],
)
def test_fields_have_the_names_by_which_they_are_written(kind: type, names: dict[str, str] | None) -> None:
    assert field_names(kind) == names


def test_an_alias_that_is_not_read_is_not_written() -> None:
    assert is_written_by_alias(Model)
    assert not is_written_by_alias(ForWritingAlone)


@pytest.mark.parametrize(
    ("type_", "expected"), [(Model, True), (Model(firstName="a"), False), (Node, False), (list[Model], False)]
)
def test_a_model_is_a_class_with_the_methods_of_pydantic(type_: Any, expected: bool) -> None:
    assert is_model(type_) is expected


def test_a_class_that_refers_to_itself_is_readable() -> None:
    parts = check_readable(Node, "Serdes.json(Node)")
    assert [part.cls for part in parts if isinstance(part, msgspec.inspect.DataclassType)] == [Node]


def test_a_type_that_cannot_be_read_is_named_with_its_serde() -> None:
    expected = r"^Serdes\.json\(x\) cannot read a Counter: name a dict, a list or a dataclass in its place\.$"
    with pytest.raises(TypeError, match=expected):
        check_readable(dict[str, list[Counter[str]]], "Serdes.json(x)")


def test_a_type_without_a_name_is_shown_as_it_is_written() -> None:
    assert (name_of(Node), name_of(int | str)) == ("Node", "int | str")
