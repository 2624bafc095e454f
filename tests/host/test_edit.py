"""A running application goes on with a changed topology and its state, on each host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from penstock import KafkaStreams, Materialized, Serdes, StreamsBuilder, Topology
from penstock.errors import StreamsError
from penstock.testing import TopologyTestDriver
from tests.host.spark.checkpoints.test_moving_stores import KINDS, parts_of, program
from tests.host.support import InputRecord, Runner, lines, wait_for
from tests.host.test_changes import PAIRS
from tests.host.test_topologies import COUNT_OUT, TEXT, final, word_count

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 1)]

TEXTS = Serdes.string()
ON_SPARK = pytest.param("spark", marks=(pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")))


def edited(source: str, target: str, change: Callable[[str], str], store: str = "counts") -> Topology:
    """The word count with a changed function, and another branch before it."""
    builder = StreamsBuilder()
    words = builder.stream(source, consumed=TEXT).flat_map_values(lambda line: line.split())
    initials = words.group_by(lambda _, word: word[0], grouped=PAIRS.with_name("initials"))
    initials.count(materialized=Materialized.as_("initials"))
    by_word = words.map_values(change).group_by(lambda _, word: word, grouped=PAIRS)
    by_word.count(materialized=Materialized.as_(store)).to_stream().to(target, produced=COUNT_OUT)
    return builder.build()


@pytest.mark.parametrize("runner", [ON_SPARK, "threads"], indirect=True)
def test_an_edit_goes_on_with_the_state(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    runner.write(topics[0], lines(["a b", "b"], partitions=2))
    config = runner.config(application)
    with KafkaStreams(word_count(*topics), config, **runner.options()) as streams:
        wait_for(lambda: final(runner.read(topics[1])) == {"a": 1, "b": 2})
        with pytest.raises(StreamsError, match="store counts is not in the changed topology"):
            streams.edit(edited(*topics, str.upper, store="other"))
        edit = streams.edit(edited(*topics, lambda word: word.replace("c", "b")))
        assert "store initials is new and starts empty" in edit.lines
        assert any(line.startswith("store counts keeps its state") for line in edit.lines)
        runner.write(topics[0], lines(["a c"]))
        wait_for(lambda: final(runner.read(topics[1])) == {"a": 2, "b": 3})
        assert streams.edit(edited(*topics, str.upper)).lines == ()
        runner.write(topics[0], lines(["a"]))
        wait_for(lambda: final(runner.read(topics[1])) == {"a": 2, "b": 3, "A": 1})
    assert streams.error() is None


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("kind", ["calendar windows", "headers", "time to live"])
@pytest.mark.parametrize("runner", [ON_SPARK, "threads"], indirect=True)
def test_an_edit_goes_on_with_stores_of_each_kind(
    runner: Runner, application: str, topics: tuple[str, str], kind: str
) -> None:
    source, target = topics
    own = KINDS[kind]
    settings = {"default.key.serde": TEXTS, "default.value.serde": TEXTS, **own.settings}
    plain, changed = (program(own, source, target, is_edited) for is_edited in (False, True))
    first, second, third = parts_of(own)
    with TopologyTestDriver(plain, runner.config(application, settings)) as driver:
        expected = [written(driver, source, target, part) for part in (first, [*second, *third])]

    def found() -> list[tuple[object, ...]]:
        return [(each.key, each.value, each.timestamp, each.headers) for each in runner.read(target)]

    runner.write(source, first)
    with KafkaStreams(plain, runner.config(application, settings), **runner.options()) as streams:
        wait_for(lambda: found() == expected[0])
        edit = streams.edit(changed)
        assert any(line.startswith("store kept keeps its state") for line in edit.lines)
        for part in (second, third):
            runner.write(source, part)
        wait_for(lambda: len(found()) >= len(expected[0]) + len(expected[1]))
        assert found() == expected[0] + expected[1]
    assert expected[1]


def written(
    driver: TopologyTestDriver, source: str, target: str, records: Sequence[InputRecord]
) -> list[tuple[object, ...]]:
    """Return the results of records."""
    for record in records:
        driver.pipe_bytes(source, record.key, record.value, record.timestamp, record.headers)
    results = (each for each in driver.read_all_bytes() if each.topic == target)
    return [(each.key, each.value, each.timestamp, each.headers) for each in results]
