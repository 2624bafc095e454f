"""Facts about serdes: their byte formats, the types that they write and read, and whether two are alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict
from uuid import UUID

import pydantic
import pytest

from penstock.calendar_windows import CalendarWindows
from penstock.serdes import ListSerde, Serde, Serdes
from penstock.serdes.annotated import serde_of_annotation
from penstock.serdes.count_window import CountWindowSerde
from penstock.serdes.format import are_alike, format_of, is_misread, read_type, written_type
from penstock.serdes.key_and_id import KeyAndIdSerde
from penstock.serdes.windowed import WindowedSerdes
from penstock.windows import Windowed

S, D = Serdes.string(), Serdes.double()
DAYS, MONTHS = CalendarWindows.days("UTC", 0), CalendarWindows.months("UTC", 0)


@dataclass
class Total:
    amount: float


@dataclass
class Other:
    amount: float


class Fields(TypedDict):
    amount: float


class Model(pydantic.BaseModel):
    amount: float


def as_bytes(value: Any) -> bytes:
    return bytes(value)


OWN = Serdes.serde_from(as_bytes, as_bytes)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (Serdes.string(), Serdes.string(), True),
        (Serdes.string(), Serdes.long(), False),
        (Serdes.json(Total), Serdes.json(Total), True),
        (Serdes.json(Total), Serdes.json(Other), False),
        (ListSerde(S), ListSerde(Serdes.string()), True),
        (ListSerde(S), ListSerde(D), False),
        (WindowedSerdes.time_windowed(S, 1), WindowedSerdes.time_windowed(Serdes.string(), 1), True),
        (WindowedSerdes.time_windowed(S, 1), WindowedSerdes.time_windowed(S, 2), False),
        (WindowedSerdes.calendar_windowed(S, DAYS), WindowedSerdes.calendar_windowed(Serdes.string(), DAYS), True),
        (WindowedSerdes.calendar_windowed(S, DAYS), WindowedSerdes.calendar_windowed(S, MONTHS), False),
        (Serdes.serde_from(as_bytes, as_bytes), Serdes.serde_from(as_bytes, as_bytes), False),
        (S, None, False),
    ],
)
def test_serdes_are_alike_where_both_are_known_to_write_the_same(one: Serde, other: Serde | None, alike: bool) -> None:
    assert are_alike(one, other) is alike
    assert are_alike(one, one)


def test_annotations_are_alike_if_they_select_the_same_serde() -> None:
    assert are_alike(serde_of_annotation(Total), serde_of_annotation(Total))
    assert not are_alike(serde_of_annotation(Total), serde_of_annotation(Other))
    assert not are_alike(serde_of_annotation(str), S), "a default replaces the annotation alone"


@pytest.mark.parametrize(
    ("serde", "expected"),
    [
        (Serdes.bytes(), "bytes"),
        (Serdes.byte_buffer(), "bytes"),
        (Serdes.long(), "long"),
        (Serdes.json(Total), "json"),
        (Serdes.json(Model), "json"),
        (WindowedSerdes.time_windowed(S, 1), "string in Time windows"),
        (WindowedSerdes.calendar_windowed(S, DAYS), "string in Time windows"),  # the same bytes
        (WindowedSerdes.session_windowed(Serdes.long()), "long in Session windows"),
        (WindowedSerdes.session_windowed(OWN), None),
        (KeyAndIdSerde(S, Serdes.long()), "string with a long id"),
        (KeyAndIdSerde(S, OWN), None),
        (KeyAndIdSerde(None, S), None),
        (CountWindowSerde(D), "double in windows of n records"),
        (CountWindowSerde(OWN), None),
        (CountWindowSerde(None), None),
        (OWN, None),
        (None, None),
    ],
)
def test_a_format_describes_the_bytes_if_they_are_known(serde: Serde | None, expected: str | None) -> None:
    assert format_of(serde) == expected


@pytest.mark.parametrize(
    ("serde", "written", "read"),
    [
        (Serdes.uuid(), UUID, UUID),
        (Serdes.integer(), int, int),
        (D, float, float),
        (serde_of_annotation(float), None, None),  # an annotation of float also allows whole numbers
        (serde_of_annotation(str), None, str),
        (Serdes.list(S), list, list),
        (WindowedSerdes.session_windowed(S), Windowed, Windowed),
        (WindowedSerdes.calendar_windowed(S, DAYS), Windowed, Windowed),
        (Serdes.json(Model), Model, Model),
        (Serdes.json(Total), None, Total),
        (Serdes.json(Fields), None, None),
        (Serdes.json(), None, None),
        (OWN, None, None),
    ],
)
def test_the_type_of_values_is_known_where_it_is_the_only_one(serde: Any, written: Any, read: Any) -> None:
    assert (written_type(serde), read_type(serde)) == (written, read)


@pytest.mark.parametrize(
    ("written", "read", "expected"),
    [
        (Serdes.long(), Serdes.integer(), True),
        (Serdes.long(), S, True),
        (S, Serdes.boolean(), True),
        (D, D, False),
        (S, Serdes.json(), False),
        (Serdes.long(), Serdes.bytes(), False),
        (Serdes.long(), OWN, False),
    ],
)
def test_numbers_of_a_fixed_size_are_misread_by_any_other_format(written: Serde, read: Serde, expected: bool) -> None:
    assert is_misread(written, read) is expected
