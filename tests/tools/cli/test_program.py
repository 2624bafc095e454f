"""Program files: what is found in them, and the errors if they are wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import cloudpickle
import pytest

from penstock.errors import TopologyError
from penstock.tools.cli.program import ProgramError, load_program

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "word_count.py"

PROGRAM = """
from penstock import StreamsBuilder, StreamsConfig
import beside
builder = StreamsBuilder()
def mapper(value): return beside.shout(value)
builder.stream("in").map_values(mapper).to("out")
topology = builder.build()
config = StreamsConfig({"application.id": "mine"}, environment={})
if __name__ == "__main__":
    raise SystemExit("started")
"""


def program(directory: Path, text: str) -> Path:
    path = directory / "my_program.py"
    path.write_text(text)
    return path


def test_a_program_is_loaded_and_not_started(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def shout(text): return text.upper()")
    found = load_program(program(tmp_path, PROGRAM))
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: [in])" in str(found.topology.describe())
    assert found.configured({"client.id": "x"})["application.id"] == "mine"
    assert found.configured({"application.id": "other"})["application.id"] == "other"


@pytest.mark.parametrize(
    "call", ["start()", "run_to_end()", "clean_up()", "__enter__()", "edit(topology)", "start().await_termination()"]
)
def test_a_program_without_a_main_guard_is_named_and_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr("penstock.streams.open_host", lambda *arguments, **options: pytest.fail("it runs"))
    lines = [
        "from penstock import KafkaStreams, Topology",
        "topology = Topology().add_source('source', 'in').add_sink('sink', 'out', 'source')",
        "streams = KafkaStreams(topology, {'application.id': 'app', 'bootstrap.servers': 'localhost:1'})",
        f"streams.{call}",
    ]
    path = program(tmp_path, "\n".join(lines))
    with pytest.raises(ProgramError, match=rf"runs its application .* at {path}:4\. .*if __name__ == \"__main__\":"):
        load_program(path)
    guarded = [*lines[:3], "if __name__ == '__main__':", f"    streams.{call}"]
    for name in ("my_program.py", "__main__.py"):
        (tmp_path / name).write_text("\n".join(guarded))
        assert load_program(tmp_path / name).topology is not None


def test_functions_of_a_program_travel_by_value(tmp_path: Path) -> None:
    lines = ("from penstock import Topology", "topology = Topology()", "def f(x): return x + 1", "config = {'f': f}")
    found = load_program(program(tmp_path, "\n".join(lines)))
    assert "my_program" not in sys.modules
    assert cloudpickle.loads(cloudpickle.dumps(found.config["f"]))(1) == 2


def test_the_application_is_named_after_its_file_if_nothing_else_is_reported(tmp_path: Path) -> None:
    found = load_program(program(tmp_path, "from penstock import Topology\ntopology = Topology()"))
    assert found.configured({})["application.id"] == "my-program"


def test_named_topologies_are_loaded_for_commands_that_take_them(tmp_path: Path) -> None:
    text = "from penstock import Topology\ntopologies = {'a': Topology(), 'b': Topology()}"
    found = load_program(program(tmp_path, text))
    assert [each.name() for each in found.named_topologies] == ["a", "b"]
    assert found.topology_named("b") is found.topologies["b"]
    with pytest.raises(ProgramError, match="has no topology named c; it has: a, b"):
        found.topology_named("c")
    with pytest.raises(ProgramError, match=r"defines named topologies \(a, b\)\. This command takes"):
        _ = found.topology


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", "must define `topology`"),
        ("topology = 3", "it is a int"),
        ("from penstock import Topology\ntopology = Topology()\nconfig = 3", "must be a dict"),
        ("topologies = {}", "with at least one"),
        ("topologies = {'a': 3}", "must be a dict with the Topology of each name"),
        ("from penstock import Topology\ntopologies = {'a__b': Topology()}", "Invalid name 'a__b' of a topology"),
        ("\n\n1 / 0", r"ZeroDivisionError: division by zero \(line 3\)"),
        ("\n(", r"SyntaxError: '\(' was never closed \(.*program\.py, line 2\)\.$"),
        ("from .models import X", r"ImportError: .* \(line 1\)\. .*`from models import X`\."),
    ],
)
def test_what_is_wrong_with_a_program_is_reported(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ProgramError, match=told):
        load_program(program(tmp_path, text))


def test_an_error_that_ends_with_a_stop_keeps_one_stop(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"TypeError: Give a number \(line 1\)\.$"):
        load_program(program(tmp_path, 'raise TypeError("Give a number.")'))


def test_an_invalid_topology_names_the_line_of_the_program(tmp_path: Path) -> None:
    text = "from penstock import Topology\ntopology = Topology()\ntopology.add_sink('out', 'topic', 'nowhere')"
    with pytest.raises(TopologyError, match="Parent node nowhere is unknown") as caught:
        load_program(program(tmp_path, text))
    assert caught.value.__notes__ == [f"Raised by {tmp_path / 'my_program.py'} (line 3)."]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"nowhere\.py"):
        load_program(tmp_path / "nowhere.py")


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 25


@pytest.mark.parametrize("name", ["penstock.py", "my_program.py"])
def test_a_file_that_hides_the_package_is_refused(tmp_path: Path, name: str) -> None:
    hiding = tmp_path / "penstock.py"
    hiding.write_text("")
    program(tmp_path, PROGRAM)
    with pytest.raises(ProgramError, match=rf"{hiding} hides the package penstock"):
        load_program(tmp_path / name)
