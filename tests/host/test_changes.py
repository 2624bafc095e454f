"""Programs that change between runs, on each host: what becomes of the state of their stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import (
    Grouped,
    Materialized,
    QueryableStoreTypes,
    StoreQueryParameters,
    StreamsBuilder,
    Topology,
)
from tests.host.support import Program, Runner, lines
from tests.host.test_topologies import COUNT_OUT, STRING, TEXT, final

pytestmark = pytest.mark.one_broker

PAIRS = Grouped.with_(key_serde=STRING, value_serde=STRING)


def counting(source: str, target: str, *stores: str, only: str = "", extra: int = 0) -> Topology:
    """Count words in each of `stores`, each in a separate sub-topology, numbered in this order; the first goes to
    `target`. only: words that are counted. extra: nodes before, which do nothing."""
    builder = StreamsBuilder()
    words = builder.stream(source, consumed=TEXT).flat_map_values(lambda line: line.split())
    for _ in range(extra):
        words = words.filter(lambda _, word: True)
    words = words.filter(lambda _, word: word.startswith(only))
    for place, store in enumerate(stores):
        by_word = words.group_by(lambda _, word: word, grouped=PAIRS.with_name(store))
        counted = by_word.count(materialized=Materialized.as_(store))
        if place == 0:
            counted.to_stream().to(target, produced=COUNT_OUT)
    return builder.build()


def together(source: str, target: str, *stores: str) -> Topology:
    """Count the words in all `stores` in one sub-topology."""
    builder = StreamsBuilder()
    words = builder.stream(source, consumed=TEXT).flat_map_values(lambda line: line.split())
    by_word = words.group_by(lambda _, word: word, grouped=PAIRS.with_name("words"))
    tables = [by_word.count(materialized=Materialized.as_(store)) for store in stores]
    tables[0].to_stream().to(target, produced=COUNT_OUT)
    return builder.build()


def counts(program: Program, store: str) -> dict[str, int]:
    parameters = StoreQueryParameters.from_name_and_type(store, QueryableStoreTypes.key_value_store())
    return dict(program.queries().store(parameters).all())


def test_kept_stores_continue_and_new_ones_start_empty(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    runner.write(topics[0], lines(["a b", "b c"], partitions=3))
    program = start(counting(*topics, "counts"), runner.config(application))
    program.run_to_end()
    program.change(counting(*topics, "counts", "again", extra=2))
    runner.write(topics[0], lines(["a", "d"], partitions=3))
    program.run_to_end()
    assert counts(program, "counts") == {"a": 2, "b": 2, "c": 1, "d": 1}
    assert counts(program, "again") == {"a": 1, "d": 1}
    assert final(runner.read(topics[1])) == {"a": 2, "b": 2, "c": 1, "d": 1}


def test_a_store_is_found_again_in_a_sub_topology_of_another_number(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    runner.write(topics[0], lines(["a b", "b c"], partitions=3))
    program = start(counting(*topics, "counts"), runner.config(application))
    program.run_to_end()
    program.change(counting(*topics, "before", "counts"))
    runner.write(topics[0], lines(["a", "d"], partitions=3))
    program.run_to_end()
    assert counts(program, "counts") == {"a": 2, "b": 2, "c": 1, "d": 1}
    assert counts(program, "before") == {"a": 1, "d": 1}
    program.change(counting(*topics, "counts", "before"))
    runner.write(topics[0], lines(["a", "e"], partitions=3))
    program.run_to_end()
    assert counts(program, "counts") == {"a": 3, "b": 2, "c": 1, "d": 1, "e": 1}
    assert counts(program, "before") == {"a": 2, "d": 1, "e": 1}


def test_a_removed_store_is_kept_and_continues_when_it_is_back(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    runner.write(topics[0], lines(["a b", "b c"], partitions=3))
    program = start(counting(*topics, "counts", "other"), runner.config(application))
    program.run_to_end()
    program.change(counting(*topics, "counts"))
    runner.write(topics[0], lines(["a", "d"], partitions=3))
    program.run_to_end()
    program.change(counting(*topics, "other", "counts"))
    runner.write(topics[0], lines(["a"], partitions=3))
    program.run_to_end()
    assert counts(program, "other") == {"a": 2, "b": 2, "c": 1}
    assert counts(program, "counts") == {"a": 3, "b": 2, "c": 1, "d": 1}


def test_stores_come_together_and_part_again(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    runner.write(topics[0], lines(["a b", "b c"], partitions=3))
    program = start(counting(*topics, "counts", "other"), runner.config(application))
    program.run_to_end()
    for topology in (
        together(*topics, "counts", "other"),
        together(*topics, "other", "counts", "third"),
        together(*topics, "counts"),
        counting(*topics, "other", "counts"),
    ):
        program.change(topology)
        runner.write(topics[0], lines(["a", "d"], partitions=3))
        program.run_to_end()
    assert counts(program, "counts") == {"a": 5, "b": 2, "c": 1, "d": 4}
    assert counts(program, "other") == {"a": 4, "b": 2, "c": 1, "d": 3}
