"""A running application goes on with a changed topology and its state, on each host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import KafkaStreams, Materialized, StreamsBuilder, Topology
from penstock.errors import StreamsError
from tests.host.support import Runner, lines, wait_for
from tests.host.test_changes import PAIRS
from tests.host.test_topologies import COUNT_OUT, TEXT, final, word_count

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 1)]

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
