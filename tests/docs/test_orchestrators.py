"""The page on Airflow and Dagster: its program runs, and its snippets for other packages parse."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import KafkaStreams, Serdes, StreamsBuilder
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock_broker.process import BrokerProcess
from tests.docs.pages import ROOT, fences, parsed, run_block
from tests.support.plain_producer import PlainProducer

PAGE = "docs/orchestrators.md"
SNIPPETS = [text for language, text in fences(PAGE) if language == "py"]


def commands(snippet: str) -> Iterator[str]:
    """Yield the command lines in a snippet: texts, and lists of words."""
    for node in ast.walk(ast.parse(snippet)):
        match node:
            case ast.Constant(value=str(text)) if text.startswith("penstock "):
                yield text
            case ast.List(elts=[ast.Constant(value="penstock"), *_]):
                yield shlex.join(ast.literal_eval(node))


def test_a_second_run_has_nothing_left_to_do(embedded_broker: BrokerProcess, tmp_path: Path) -> None:
    servers = {"bootstrap.servers": embedded_broker.bootstrap_servers}
    admin = ConfluentAdmin(StreamsConfig(servers))
    admin.create_topics([NewTopic("orders-of-a-job", 1), NewTopic("totals-of-a-job", 1)])
    admin.close()
    producer = PlainProducer(StreamsConfig(servers))
    for value in (b"a", b"b"):
        producer.send("orders-of-a-job", b"k", value)
    producer.close()
    builder = StreamsBuilder()
    builder.stream("orders-of-a-job").group_by_key().count().to_stream().to("totals-of-a-job")
    config = {
        **servers,
        "application.id": "job-of-the-page",
        "penstock.host": "threads",
        "state.dir": str(tmp_path),
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.string(),
    }
    names = {"__name__": "page", "KafkaStreams": KafkaStreams, "topology": builder.build(), "config": config}
    run_block(PAGE, 0, names)
    assert [names["run"]() for _ in range(2)] == [2, 0]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["airflow", "dagster"])
def test_the_snippets_run_a_program_to_its_end(snippet: str) -> None:
    [line] = commands(snippet)
    assert parsed(line).params["until_end"] is True


def test_the_exit_codes_are_those_of_the_commands() -> None:
    page, reference = (
        {line.split("|")[1].strip() for line in (ROOT / name).read_text("utf-8").splitlines() if line.startswith("| ")}
        for name in (PAGE, "docs/commands.md")
    )
    codes = {code for code in page if code.isdecimal()}
    assert codes == {"0", "1", "2", "143"} <= reference
