"""A store of a running application that redraws itself in a notebook."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import Consumed, KafkaStreams, Materialized, Serdes, State, StreamsBuilder
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import StreamsNotStartedError, UnknownStateStoreError
from penstock.notebook import TEXT
from penstock_broker.process import BrokerProcess
from tests.host.support import wait_for
from tests.support.frames import rows_for_all
from tests.support.plain_producer import PlainProducer

STRING = Serdes.string()


CELL: ContextVar[str] = ContextVar("CELL", default="no cell")
"""The cell that a kernel runs, to which it sends what is drawn."""


class Notebook:
    """What a view uses of IPython (the modules of that name), and what it has drawn in each place."""

    def __init__(self) -> None:
        self.places: list[list[str]] = []
        self.shell: object = object()

    def display(self, bundle: dict[str, str], raw: bool, display_id: bool) -> Any:
        """Draw `bundle` in another place; returns what redraws it there."""
        assert raw
        assert display_id
        drawn = [bundle[TEXT]]
        self.places.append(drawn)

        class Handle:
            def update(self, bundle: dict[str, str], raw: bool) -> None:
                assert raw
                drawn.append(f"{CELL.get()}: {bundle[TEXT]}")

        return Handle()


class Terminal:
    """The shell of a terminal."""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    notebook = Notebook()
    contents: dict[str, dict[str, Any]] = {
        "IPython": {"get_ipython": lambda: notebook.shell},
        "IPython.display": {"display": notebook.display},
        "IPython.terminal": {},
        "IPython.terminal.interactiveshell": {"TerminalInteractiveShell": Terminal},
    }
    for name, content in contents.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return notebook


class Application:
    """A count of words on the threads host, and its input."""

    def __init__(self, brokers: str, topic: str, directory: Path) -> None:
        self._config, self._topic = StreamsConfig({"bootstrap.servers": brokers}), topic
        admin = ConfluentAdmin(self._config)
        admin.create_topics([NewTopic(topic, 1)])
        admin.close()
        builder = StreamsBuilder()
        builder.stream(topic, Consumed.with_(STRING, STRING)).group_by_key().count(Materialized.as_("counts"))
        config = {
            "application.id": topic,
            "bootstrap.servers": brokers,
            "penstock.host": "threads",
            "state.dir": str(directory),
            "processing.guarantee": "at_least_once",
            "statestore.cache.max.bytes": 0,
        }
        self.streams = KafkaStreams(builder.build(), config)

    def write(self, *keys: str) -> None:
        producer = PlainProducer(self._config)
        for key in keys:
            producer.send(self._topic, key.encode(), b"")
        producer.close()


@pytest.fixture
def application(
    embedded_broker: BrokerProcess, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Application]:
    made = Application(embedded_broker.bootstrap_servers, unique_name("in"), tmp_path)
    yield made
    made.streams.close()


def views() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("view-")]


def test_a_view_redraws_itself_until_the_application_ends(application: Application, notebook: Notebook) -> None:
    with pytest.raises(StreamsNotStartedError):
        application.streams.view("counts")
    application.write("a")
    with application.streams as streams:
        wait_for(lambda: streams.state() is State.RUNNING)
        with pytest.raises(UnknownStateStoreError):
            streams.view("other")
        with pytest.raises(ValueError, match="rows must be 1 or more, got 0"):
            streams.view("counts", rows=0)
        view = streams.view("counts", refresh_ms=10)
        wait_for(lambda: "'a'  1" in view._repr_mimebundle_()[TEXT])
        assert [row["key"] for row in rows_for_all(view)] == ["a"]
        CELL.set("cell 1")
        view._ipython_display_()
        CELL.set("cell 2")
        (drawn,) = notebook.places
        assert drawn[0].startswith("Store counts (kind: timestamped key-value store")
        application.write("b", "a")
        wait_for(lambda: "'b'  1" in drawn[-1] and "'a'  2" in drawn[-1])
        assert all(before != after for before, after in pairwise(drawn))  # what has not changed is not drawn again
        assert drawn[-1].startswith("cell 1: Store counts")
        assert views() == ["view-counts"]

        again = streams.view("counts", refresh_ms=10)  # as a cell that is run again
        again._ipython_display_()
        wait_for(lambda: views() == ["view-counts"])
        application.write("c")
        wait_for(lambda: "'c'  1" in notebook.places[1][-1])
        assert "'c'" not in drawn[-1]
    wait_for(lambda: not views())
    assert "'c'  1" in notebook.places[1][-1]


def test_a_terminal_shows_a_view_once(application: Application, notebook: Notebook) -> None:
    notebook.shell = Terminal()
    with application.streams as streams:
        wait_for(lambda: streams.state() is State.RUNNING)
        streams.view("counts", refresh_ms=10)._ipython_display_()
        assert len(notebook.places) == 1
        assert not views()
