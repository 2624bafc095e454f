"""What a changed program means for state, over shapes alone."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import Serdes, StreamsBuilder, StreamsConfig
from penstock.dsl.options import Consumed
from penstock.host.spark.checkpoints.checkpoint import RemovedStore, removed_holder
from penstock.host.spark.checkpoints.evolution import Evolution, StateOrigin, evolve, topology_shape

NAMES = ("a", "b", "c", "d", "removed-a", "e_1")
Groups = list[list[str]]


def shape(groups: Groups, partitions: int = 2, layout: str = "key_value", formats: Any = None) -> dict[str, Any]:
    """Return the shape of a program whose sub-topology n has the stores of `groups[n]`."""
    return {
        "tasks of each level": [[f"{n}_{p}" for n in range(len(groups)) for p in range(partitions)]],
        "partitions of source topics": {f"t{n}": partitions for n in range(len(groups))},
        "topics": {str(n): [f"t{n}"] for n in range(len(groups))},
        "nodes": {str(n): [] for n in range(len(groups))},
        "stores": {str(n): dict.fromkeys(stores, layout) for n, stores in enumerate(groups)},
        "formats": formats or {},
    }


@st.composite
def groupings(draw: st.DrawFn) -> Groups:
    """Return some of the names, each in one of some groups."""
    places = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3)))
    return [[name for name, place in places.items() if place == group] for group in range(4)]


def named(groups: Groups) -> set[str]:
    return {name for group in groups for name in group}


def holders_of(evolution: Evolution, before: Groups, name: str) -> list[tuple[str, str]]:
    """Return from which holder to which the state of a store goes."""
    found = []
    for target, origin in [*evolution.origins.items(), *evolution.removals.items()]:
        if name in origin.stores:
            found.append((origin.stores[name], target))
        elif origin.whole is not None and not origin.whole.startswith("removed-"):
            group = before[int(origin.whole.partition("_")[0])]
            found += [(origin.whole, target)] if name in group else []
    return found


@given(groupings(), groupings())
def test_the_state_of_each_store_goes_to_one_place(before: Groups, now: Groups) -> None:
    evolution = evolve(shape(before), shape(now), {})
    assert not evolution.refused
    assert {*evolution.kept, *evolution.moved} == named(before) & named(now)
    assert set(evolution.new) == named(now) - named(before)
    assert set(evolution.removed) == set(evolution.removed_stores) == named(before) - named(now)
    for name in named(before):
        old = next(str(n) for n, group in enumerate(before) if name in group)
        for partition in (0, 1):
            found = [target for holder, target in holders_of(evolution, before, name) if holder == f"{old}_{partition}"]
            new = [f"{n}_{partition}" for n, group in enumerate(now) if name in group]
            assert found == (new or [removed_holder(name, partition)])


@given(groupings(), groupings(), st.sets(st.sampled_from(NAMES)))
def test_what_was_removed_comes_back_or_waits(before: Groups, now: Groups, gone: set[str]) -> None:
    removed = {name: RemovedStore("key_value", 2) for name in gone - named(before)}
    evolution = evolve(shape(before), shape(now), removed)
    assert set(evolution.restored) == named(now) & set(removed)
    assert set(evolution.still_removed) == set(removed) - named(now)
    for name in evolution.restored:
        assert {holder for holder, _ in holders_of(evolution, before, name)} == set(removed[name].holders(name))


def test_what_stays_together_is_not_rewritten() -> None:
    evolution = evolve(shape([["a", "b"], ["c"]]), shape([["c", "d"], ["a", "b"]]), {})
    assert {task: origin.whole for task, origin in evolution.origins.items()} == {
        "0_0": "1_0",
        "0_1": "1_1",
        "1_0": "0_0",
        "1_1": "0_1",
    }


def test_a_sub_topology_without_stores_is_known_by_its_topics() -> None:
    before = {**shape([[], []]), "topics": {"0": ["x"], "1": ["y"]}}
    now = {**shape([[], []]), "topics": {"0": ["y"], "1": ["z"]}}
    assert {task: origin.whole for task, origin in evolve(before, now, {}).origins.items()} == {
        "0_0": "1_0",
        "0_1": "1_1",
    }


def test_conflicts_are_named_with_what_to_do() -> None:
    kept = shape([["a"]])
    assert "penstock savepoint drop FILE a" in evolve(kept, shape([["a"]], layout="window"), {}).refused[0]
    assert "2 partitions (tasks) and would have 3" in evolve(kept, shape([["a"]], partitions=3), {}).refused[0]
    assert "--rescale" in evolve(kept, shape([["a"]], partitions=3), {}).refused[0]
    assert "savepoint drop FILE a" in evolve(shape([[]]), kept, {"a": RemovedStore("key_value", 5)}).refused[0]
    formats = [shape([["a"]], formats={"a": ["string", each]}) for each in ("long", "json", None)]
    assert "values as long, and the program reads them as json" in evolve(formats[0], formats[1], {}).refused[0]
    assert not evolve(formats[0], formats[2], {}).refused
    grouped = {**kept, "partitions of tasks": {"0_0": "t0-0, t0-1"}}
    assert "partition.grouper must not change" in evolve(kept, grouped, {}).refused[0]
    assert evolve(kept, grouped, {}).lines() == [f"REFUSED: {evolve(kept, grouped, {}).refused[0]}"]


def test_stateless_sub_topologies_take_any_number_of_tasks() -> None:
    evolution = evolve(shape([[]], partitions=2), shape([[]], partitions=5), {})
    assert not evolution.refused
    assert sorted(evolution.origins) == ["0_0", "0_1"]


def test_the_shape_of_a_topology_needs_no_topics() -> None:
    builder = StreamsBuilder()
    text = Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.string())
    builder.global_table("rates", text)
    builder.stream("sales", text)
    config = StreamsConfig({"application.id": "app"})
    assert topology_shape(builder.build().build("app"), config, {})


def test_values_with_and_without_headers_are_rewritten_where_their_store_goes_on() -> None:
    plain, with_headers = "timestamped_key_value", "timestamped_key_value, with headers"
    for before, now, gets in ((plain, with_headers, True), (with_headers, plain, False)):
        evolution = evolve(shape([["a", "b"]], layout=before), shape([["a", "b"]], layout=now), {})
        assert not evolution.refused
        assert evolution.kept == ("a", "b")
        headers = {"a": gets, "b": gets}
        assert evolution.headers == headers
        assert evolution.origins["0_1"] == StateOrigin(
            stores={"a": "0_1", "b": "0_1"}, clocks=("0_1",), headers=headers
        )
        what = "with a place for headers" if gets else "without headers"
        assert evolution.lines() == [
            "store a keeps its state",
            "store b keeps its state",
            f"store a: its values are rewritten {what}",
            f"store b: its values are rewritten {what}",
        ]


def test_only_the_values_of_stores_in_another_format_are_rewritten() -> None:
    before, now = shape([["a", "b"], ["c"]]), shape([["a", "b"], ["c"]])
    now["stores"]["0"]["b"] += ", with headers"
    evolution = evolve(before, now, {})
    assert evolution.headers == {"b": True}
    assert (evolution.kept, evolution.moved) == (("a", "b", "c"), ())
    assert evolution.origins["0_0"].headers == {"b": True}
    assert evolution.origins["1_0"] == StateOrigin(whole="1_0", clocks=("1_0",))


def test_a_store_that_moves_and_one_that_is_back_are_rewritten_too() -> None:
    now = shape([["c"], ["a", "b"]], layout="key_value, with headers")
    evolution = evolve(shape([["a"]]), now, {"b": RemovedStore("key_value", 2)})
    assert (evolution.moved, evolution.restored, evolution.new) == (("a",), ("b",), ("c",))
    assert evolution.headers == {"b": True, "a": True}
    assert evolution.origins["1_0"].headers == {"a": True, "b": True}
    assert evolve(now, shape([["a"]]), {}).removed_stores["b"].layout == "key_value, with headers"


def test_another_kind_is_refused_with_headers_and_without() -> None:
    before, now = shape([["a"]], layout="key_value"), shape([["a"]], layout="timestamped_key_value, with headers")
    (reason,) = evolve(before, now, {}).refused
    assert "has the layout 'key_value' and would now have 'timestamped_key_value, with headers'" in reason
