"""What is the user's, pickled for other processes."""

import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pytest

from penstock import Consumed, Materialized, Processor, Record, Serdes, StreamsBuilder, StreamsConfig
from penstock.errors import StreamsError
from penstock.host.packing.pickling import dump
from penstock.host.spark.protocol.application_description import dump_description
from tests.host.spark.protocol.test_application_description import description_of

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


def test_functions_keep_the_names_of_their_files() -> None:
    def outer() -> Callable[[], str]:
        return lambda: "inner"

    loaded = pickle.loads(dump(outer))
    assert loaded.__code__ is not outer.__code__
    assert loaded.__code__.co_filename == __file__
    assert loaded().__code__.co_filename == __file__


@pytest.mark.parametrize(("cls", "json"), classes())
def test_a_json_serde_of_a_class_of_the_program_goes_to_other_processes(cls: type, json: str, tmp_path: Path) -> None:
    serde = Serdes.json(cls)
    serde.deserialize("t", json.encode())  # msgspec keeps in the class what it learned of it
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, json], input=dump(serde), cwd=tmp_path, capture_output=True, check=True
    )
    assert loaded.stdout.decode() == json


def test_a_record_without_a_required_field_is_refused_in_other_processes(tmp_path: Path) -> None:
    @dataclass
    class Order:
        id: int
        product: str
        note: str = ""

    command = [sys.executable, "-c", LOAD, '{"id":1}']
    loaded = subprocess.run(command, input=dump(Serdes.json(Order)), cwd=tmp_path, capture_output=True, check=False)
    assert b"Object missing required field `product`" in loaded.stderr


# ---------- what cannot be pickled


class Client:
    """Holds what belongs to one process."""

    def __init__(self, held: object) -> None:
        self.held = held


class Asking(Processor):
    def __init__(self, client: Client) -> None:
        self.client = client

    def process(self, record: Record[Any, Any]) -> None:
        raise NotImplementedError


@pytest.fixture(params=["lock", "socket", "file"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "lock":
        yield threading.Lock()
    elif request.param == "socket":
        with socket.socket() as opened:
            yield opened
    else:
        with (tmp_path / "file").open("w") as file:
            yield file


def refused(builder: StreamsBuilder, tmp_path: Path, config: StreamsConfig | None = None) -> str:
    """Return the error for a program that cannot be sent to workers."""
    description = description_of(builder.build(), tmp_path)
    with pytest.raises(StreamsError) as caught:
        dump_description(description if config is None else replace(description, config=config))
    return str(caught.value)


S = Serdes.string()


def made_at(function: Callable[..., Any]) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno}"


def test_a_variable_that_a_function_captures_is_named_with_node_and_line(held: Any, tmp_path: Path) -> None:
    def mapper(value: str) -> str:
        return f"{held}{value}"

    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S)).map_values(mapper, named="ask").to("out")
    said = refused(builder, tmp_path)
    assert said.startswith(f"Node ask (created at {__file__}:")
    assert f"mapper ({made_at(mapper)}) refers to `held`, which is of type" in said
    assert type(held).__name__ in said
    assert "in `init` of a processor or at their first use" in said


def test_an_attribute_of_what_a_function_captures_is_named(held: Any, tmp_path: Path) -> None:
    client = Client(held)
    ask: Any = lambda: Asking(client)  # noqa: E731  # the line of a lambda is what is tested
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S)).process(ask, named="ask").to("out")
    said = refused(builder, tmp_path)
    assert said.startswith("Node ask (created at ")
    assert f"<lambda> ({made_at(ask)}) refers to `client.held`" in said


def test_a_default_of_an_argument_and_a_function_within_another_are_looked_into(held: Any, tmp_path: Path) -> None:
    def inner(value: str, by: Any = held) -> str:
        return f"{by}{value}"

    def outer(value: str) -> str:
        return inner(value)

    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S)).map_values(outer).to("out")
    assert f"inner ({made_at(inner)}) refers to `by`" in refused(builder, tmp_path)


def test_a_serde_of_a_store_and_a_value_of_the_configuration_are_named(held: Any, tmp_path: Path) -> None:
    def serializer(topic: str, value: str) -> bytes:
        return f"{held}".encode()

    own: Any = Serdes.serde_from(serializer, lambda topic, data: data.decode())
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S)).group_by_key().count(Materialized.as_("s").with_key_serde(own))
    said = refused(builder, tmp_path)
    assert said.startswith("Store s (created at ")
    assert "refers to `held`" in said
    builder = StreamsBuilder()
    builder.stream("in")
    said = refused(builder, tmp_path, StreamsConfig({"application.id": "app", "default.key.serde": own}))
    assert said.startswith("The value of default.key.serde in the configuration cannot be sent")
