"""`penstock shadow` against an embedded broker, on the threads host."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock_broker.process import BrokerProcess
from tests.support.commands import Ended, Run
from tests.support.plain_producer import PlainProducer

PROGRAM = """
from penstock import Produced, Serdes, StreamsBuilder
{imports}
builder = StreamsBuilder()
stream = builder.stream("{source}")
stream.{operator}.to("{target}", Produced.as_("sink"))
topology = builder.build()
config = {{
    "application.id": "{name}",
    "bootstrap.servers": "{servers}",
    "penstock.host": "threads",
    "state.dir": "{directory}",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
}}
"""


@pytest.fixture
def program(embedded_broker: BrokerProcess, tmp_path: Path, unique_name: Callable[[str], str]) -> Callable[..., Path]:
    """Writes a program with an operator to a file."""
    name, source, target = unique_name("app"), unique_name("in"), unique_name("out")
    config = StreamsConfig({"bootstrap.servers": embedded_broker.bootstrap_servers})
    admin = ConfluentAdmin(config)
    admin.create_topics([NewTopic(source, 1), NewTopic(target, 1)])
    admin.close()
    producer = PlainProducer(config)
    for key, value in (("a", "one"), ("b", "two")):
        producer.send(source, key.encode(), value.encode())
    producer.close()

    def write(file: str, operator: str, imports: str = "") -> Path:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        servers = embedded_broker.bootstrap_servers
        path.write_text(
            PROGRAM.format(
                imports=imports,
                source=source,
                operator=operator,
                target=target,
                name=name,
                servers=servers,
                directory=tmp_path / "state",
            )
        )
        return path

    return write


@pytest.fixture
def shadow(penstock_here: Run) -> Callable[..., Ended]:
    """Compares the second program with the first."""
    return lambda old, new, *options: penstock_here("shadow", str(new), "--of", str(old), *options)


def test_equal_programs_end_with_success(program: Callable[..., Path], shadow: Callable[..., Ended]) -> None:
    old, new = program("old.py", "map_values(str.upper)"), program("new.py", "map_values(lambda each: each.upper())")
    ended = shadow(old, new)
    assert ended.code == 0, ended.err
    assert ended.out.endswith(": 2 equal\n")
    assert "Both versions of " in ended.err


def test_a_difference_ends_with_failure_and_is_shown_with_its_line(
    program: Callable[..., Path], shadow: Callable[..., Ended]
) -> None:
    old, new = program("old.py", "map_values(str.upper)"), program("new.py", "map_values(str.title)")
    ended = shadow(old, new, "--limit", "1")
    assert ended.code == 1, ended.err
    _, final, before, after, example = ended.out.splitlines()
    assert ": 2 different" not in final
    assert final == "  the final values of 2 keys differ"
    assert (before, after) == (f"  old: sink ({old}:6)", f"  new: sink ({new}:6)")
    assert example.startswith('  key "a" at ')
    assert example.endswith(': old "ONE", new "One"')
    assert "differ (from beginning): topics" in ended.err


def test_json_has_the_comparison(program: Callable[..., Path], shadow: Callable[..., Ended]) -> None:
    old, new = program("old.py", "map_values(str.upper)"), program("new.py", "filter(lambda key, _: key == 'a')")
    ended = shadow(old, new, "--json")
    assert ended.code == 1, ended.err
    answer = json.loads(ended.out)
    assert (answer["equal"], answer["final_values_equal"], answer["start"]) == (False, False, "beginning")
    assert answer["topics"][0]["counts"] == {"equal": 0, "different": 1, "only_old": 1, "only_new": 0}


def test_other_records_with_the_same_final_values_may_be_accepted(
    program: Callable[..., Path], shadow: Callable[..., Ended]
) -> None:
    old, new = (
        program("old.py", "map_values(str.upper)"),
        program("new.py", "flat_map_values(lambda v: [v, v.upper()])"),
    )
    assert shadow(old, new).code == 1
    assert shadow(old, new, "--final-values").code == 0


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--from", "now"), 1, "The threads host has no savepoints"),
        (("--limit", "-1"), 2, "--limit"),
        ((), 1, "seen (created at"),
    ],
)
def test_refusals_say_why(
    program: Callable[..., Path], shadow: Callable[..., Ended], options: tuple[str, ...], code: int, text: str
) -> None:
    old = program("old.py", "peek(print, named='seen')")
    ended = shadow(old, old, *options)
    assert ended.code == code
    assert text in ended.err


def test_the_old_program_is_required(penstock_here: Run, program: Callable[..., Path]) -> None:
    assert penstock_here("shadow", str(program("new.py", "map_values(str)"))).code == 2


def test_modules_of_one_name_are_refused(
    program: Callable[..., Path], shadow: Callable[..., Ended], tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    module = unique_name("shared").replace("-", "_")
    operator, imports = f"map_values({module}.change)", f"import {module}"
    old, new = program("before/program.py", operator, imports), program("after/program.py", operator, imports)
    for directory in ("before", "after"):
        (tmp_path / directory / f"{module}.py").write_text("change = str.upper\n")
    ended = shadow(old, new)
    assert ended.code == 1
    assert f"{old} imports {module}.py of {tmp_path / 'before'}" in ended.err


def test_a_switch_of_threads_is_refused_and_leaves_nothing_to_abort(
    program: Callable[..., Path], penstock_here: Run
) -> None:
    old, new = program("old.py", "map_values(str.upper)"), program("new.py", "map_values(str.title)")
    ended = penstock_here("shadow", "switch", str(new), "--of", str(old), "--when", "equal")
    assert ended.code == 1
    assert "runs on threads: its state is in the changelog topics of the present program" in ended.err
    assert penstock_here("shadow", "abort", str(new), "--of", str(old)) == Ended(0, "", "")


def test_a_comparison_may_be_named(program: Callable[..., Path], penstock_here: Run) -> None:
    old = program("old.py", "map_values(str.upper)")
    assert penstock_here("shadow", "compare", "--of", str(old), str(old)).code == 0
