"""What is the user's, pickled for other processes."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

import pytest

from penstock.host.spark.protocol.pickling import dump
from penstock.serdes import Serdes

LOAD = """
import sys
import cloudpickle
serde = cloudpickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(serde.serialize("t", serde.deserialize("t", sys.argv[1].encode())))
"""


def classes() -> list[tuple[type, str]]:
    """Return classes that no other process can import, with JSON of each."""

    @dataclass
    class Place:
        city: str

    @dataclass
    class Order:
        id: int
        place: Place

    class Quote(NamedTuple):
        bid: float
        place: Place

    class Click(TypedDict):
        page: str

    place = '{"city":"Oslo"}'
    return [(Order, f'{{"id":1,"place":{place}}}'), (Quote, f"[1.5,{place}]"), (Click, '{"page":"about"}')]


@pytest.mark.parametrize(("cls", "json"), classes())
def test_a_json_serde_of_a_class_of_the_program_goes_to_other_processes(cls: type, json: str, tmp_path: Path) -> None:
    serde = Serdes.json(cls)
    serde.deserialize("t", json.encode())  # msgspec keeps in the class what it learned of it
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, json], input=dump(serde), cwd=tmp_path, capture_output=True, check=True
    )
    assert loaded.stdout.decode() == json
