"""KStream.print: where its lines go and what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Printed, Serdes, StreamsBuilder
from penstock.errors import TopologyError
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


def _run(builder: StreamsBuilder) -> None:
    with TopologyTestDriver(builder.build(), {"default.key.serde": TEXT, "default.value.serde": TEXT}) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("a", "1")
        topic.pipe_input(None, None)


def test_prints_key_and_value_with_the_name_of_the_node_before(capsys: pytest.CaptureFixture[str]) -> None:
    builder = StreamsBuilder()
    builder.stream("in").print(Printed.to_sys_out())
    _run(builder)
    source = "KSTREAM-SOURCE-0000000000"
    assert capsys.readouterr().out == f"[{source}]: a, 1\n[{source}]: null, null\n"


def test_prints_what_the_mapper_makes_into_a_file(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    path = tmp_path / "lines"
    printed = Printed.to_file(str(path)).with_label("in").with_key_value_mapper(lambda key, value: f"{value} of {key}")
    builder.stream("in").print(printed)
    _run(builder)
    assert path.read_text() == "[in]: 1 of a\n[in]: None of None\n"


def test_a_printing_node_is_named_by_the_counter_or_the_user() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.print(Printed.to_sys_out())
    stream.print(Printed.to_sys_out().with_name("shown"))
    described = str(builder.build().describe())
    assert "Processor: KSTREAM-PRINTER-0000000001 " in described
    assert "Processor: shown " in described


def test_a_blank_path_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"^Invalid topology: filePath can't be an empty string$"):
        Printed.to_file(" ")
