"""A flipped byte in the log of a broker: an application on each host stops and names it, and nothing of it goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing

import pytest

from penstock import Materialized, StreamsBuilder
from penstock.errors import CorruptRecordError, StreamsError
from penstock.serdes import Serdes
from tests.host.support import Runner, lines
from tests.host.test_topologies import TEXT
from tests.support.api_keys import FETCH
from tests.support.proxy import Proxy

GOOD, BAD = b"2000 dollars", b"9000 dollars"


def _flip(key: int, answer: bytes) -> bytes:
    return answer.replace(GOOD, BAD) if key == FETCH else answer


def _cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None and not isinstance(error, CorruptRecordError):
        error = error.__cause__
    return error


@pytest.mark.one_broker
@pytest.mark.parametrize("damaged", ["source", "global table"])
def test_a_flipped_byte_in_a_topic_ends_the_application(
    runner: Runner, unique_name: Callable[[str], str], damaged: str
) -> None:
    source, table, target = (unique_name(name) for name in ("in", "table", "out"))
    runner.create_topics({source: 1, table: 1, target: 1})
    runner.write(source, lines(["1000 dollars"]))
    runner.write(source if damaged == "source" else table, lines([GOOD.decode()]))
    builder = StreamsBuilder()
    builder.global_table(
        table, Materialized.as_("table").with_key_serde(Serdes.bytes()).with_value_serde(Serdes.bytes())
    )
    builder.stream(source, consumed=TEXT).to(target)
    values = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.key_serde}
    with Proxy(runner.bootstrap_servers, _flip) as proxy:
        values["bootstrap.servers"] = proxy.bootstrap_servers
        program = runner.program(builder.build(), runner.config(unique_name("app"), values))
        with closing(program), pytest.raises(StreamsError) as raised:
            program.run_to_end()
    topic, offset = (source, 1) if damaged == "source" else (table, 0)
    assert re.search(rf"reading {topic}-0 .*at offset {offset}\)", str(_cause(raised.value)))
    assert BAD not in [record.value for record in runner.read(target)]
