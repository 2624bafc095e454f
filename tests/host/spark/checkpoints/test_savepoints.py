"""Savepoints: taken, inspected, restored for the same application and another one, with re-partitioned keys, and
dropped state. Played in one process."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import (
    BufferConfig,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    QueryableStoreTypes,
    SessionWindows,
    StoreQueryParameters,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
    open_state,
    savepoints,
)
from penstock.errors import IncompatibleCheckpointError, LockError, StreamsError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.plan.partitioning import partition_for
from penstock.tools.cli.program import load_program
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_changes import counting, counts, removed
from tests.host.support import InputRecord, lines
from tests.host.test_topologies import STRING, TEXT, TEXT_OUT, final
from tests.support.commands import Run

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 2)]


def test_a_savepoint_is_taken_listed_inspected_and_restored(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    config = spark_runner.config(application)
    with pytest.raises(StreamsError, match="start the application first"):
        savepoints.take(config, str(tmp_path / "saved" / "none"))
    spark_runner.write(topics[0], lines(["a b", "b c"], partitions=2))
    query = InlineQuery(counting(*topics, "counts", "other"), config, spark_runner.admin)
    query.run_to_end()
    saved = str(tmp_path / "saved" / "monday")
    taken = savepoints.take(config, saved)
    assert savepoints.inspect(saved) == taken
    assert savepoints.list_savepoints(str(tmp_path / "saved")) == [taken]
    assert (taken.application_id, taken.epoch, taken.offsets) == (application, 1, {topics[0]: [1, 1]})
    assert {(store.name, store.partitions, store.in_program) for store in taken.stores} == {
        ("counts", 2, True),
        ("other", 2, True),
    }
    with pytest.raises(StreamsError, match="already"):
        savepoints.take(config, saved)
    with pytest.raises(StreamsError, match="A checkpoint already exists"):
        savepoints.restore(saved, config)

    spark_runner.write(topics[0], lines(["a d"]))
    query.run_to_end()  # continues, which the savepoint does not see
    again = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "again")})
    savepoints.restore(saved, again)
    restored = InlineQuery(counting(*topics, "counts", "other"), again, spark_runner.admin)
    assert counts(spark_runner, again, "counts") == {"a": 1, "b": 2, "c": 1}
    restored.run_to_end()
    assert counts(spark_runner, again, "counts") == {"a": 2, "b": 2, "c": 1, "d": 1}


def test_another_application_continues_from_a_savepoint_with_a_changed_program(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b", "b c"], partitions=2))
    InlineQuery(counting(*topics, "counts"), config, spark_runner.admin).run_to_end()
    savepoints.take(config, str(tmp_path / "saved"))
    copy = spark_runner.config(f"{application}-copy")
    savepoints.restore(str(tmp_path / "saved"), copy)
    spark_runner.write(topics[0], lines(["a"]))
    query = InlineQuery(counting(*topics, "new", "counts"), copy, spark_runner.admin)
    query.run_to_end()
    assert counts(spark_runner, copy, "counts") == {"a": 2, "b": 2, "c": 1}
    assert counts(spark_runner, copy, "new") == {"a": 1}
    assert counts(spark_runner, config, "counts") == {"a": 1, "b": 2, "c": 1}


def test_the_state_of_a_removed_store_is_dropped_by_name(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b"]))
    query = InlineQuery(counting(*topics, "counts", "other"), config, spark_runner.admin)
    query.run_to_end()
    with pytest.raises(StreamsError, match=r"that last ran on the checkpoint .* still has the store other"):
        savepoints.drop(config, "other")
    query.change(counting(*topics, "counts"))
    query.run_to_end()
    with pytest.raises(StreamsError, match="it has state of: other"):
        savepoints.drop(config, "nothing")
    checkpoint = Checkpoint(config.checkpoint_directory())
    with CheckpointLock(checkpoint, tmp_path, application), pytest.raises(LockError):
        savepoints.drop(config, "other")
    savepoints.drop(config, "other")
    assert removed(config) == set()
    assert spark_runner.manifest(config).removed == {}
    query.change(counting(*topics, "counts", "other"))
    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 2, "b": 1}
    assert counts(spark_runner, config, "other") == {"a": 1}


def test_a_store_without_a_commit_is_dropped_and_the_topics_are_read_from_where_they_were_begun(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], penstock_here: Run
) -> None:
    config = spark_runner.config(application)
    InlineQuery(counting(*topics, "counts", "other"), config, spark_runner.admin)
    query = InlineQuery(counting(*topics, "counts"), config, spark_runner.admin)
    dropped = penstock_here("savepoint", "drop", config.checkpoint_directory(), "other", "--json")
    assert (dropped.code, json.loads(dropped.out)) == (0, {"dropped": ["other"]})
    spark_runner.write(topics[0], lines(["a b"]))
    query.restart()
    query.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 1, "b": 1}


def test_diff_says_what_a_change_means_before_it_runs(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(counting(*topics, "counts", "other"), config, spark_runner.admin)
    query.run_to_end()
    same = savepoints.diff(counting(*topics, "counts", "other"), config, config)
    assert not same.differences
    changed = savepoints.diff(counting(*topics, "other", "third"), config, config)
    assert (changed.kept, changed.moved, changed.new, changed.removed) == ((), ("other",), ("third",), ("counts",))
    spark_runner.admin.create_partitions(topics[0], 5)
    refused = savepoints.diff(counting(*topics, "counts"), config, config).refused
    assert ["store counts has its keys in 2 partitions" in line for line in refused] == [True]
    offline = StreamsConfig({"application.id": application}, environment={})
    programs = savepoints.diff_programs(
        (counting("in", "out", "counts"), offline), (counting("in", "out", "counts", "new"), offline)
    )
    assert (programs.kept, programs.new) == (("counts",), ("new",))


def test_stop_look_edit_continue(spark_runner: SparkRunner, application: str, topics: tuple[str, str]) -> None:
    """As the first papers on Kafka Streams describe it: run, stop, look at intermediate values, edit, continue."""
    config = spark_runner.config(application)
    first, second = counting(*topics, "counts"), counting(*topics, "counts", "with-a", only="a")
    spark_runner.write(topics[0], lines(["apple pear", "apple"], partitions=2))
    InlineQuery(first, config, spark_runner.admin).run_to_end()
    counts_store = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    with open_state(first, config) as state:
        assert dict(state.store(counts_store).all()) == {"apple": 2, "pear": 1}
    told = savepoints.diff(second, config, config).lines()
    assert told[:2] == ["store counts keeps its state", "store with-a is new and starts empty"]
    spark_runner.write(topics[0], lines(["apple plum"]))
    InlineQuery(second, config, spark_runner.admin).run_to_end()
    with open_state(second, config) as state:
        assert dict(state.store(counts_store).all()) == {"apple": 3, "pear": 1}
    assert counts(spark_runner, config, "with-a") == {"apple": 1}


PROGRAM = """
from penstock import *
text = Serdes.string()
lines = StreamsBuilder()
words = lines.stream({source!r}, Consumed.with_(key_serde=text, value_serde=text)).flat_map_values(str.split)
grouped = words.group_by(lambda _, word: word, Grouped.with_(key_serde=text, value_serde=text).with_name("words"))
{stores}
topology = lines.build()
config = {config!r}
"""


def test_the_commands_do_the_same(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    tmp_path: Path,
    penstock_here: Run,
) -> None:
    config = dict(spark_runner.config(application).given())

    def program(name: str, *stores: str) -> str:
        counted = "\n".join(f'grouped.count(materialized=Materialized.as_("{store}"))' for store in stores)
        (tmp_path / name).write_text(PROGRAM.format(source=topics[0], stores=counted, config=config))
        return str(tmp_path / name)

    def penstock(*arguments: str) -> tuple[int, str]:
        ended = penstock_here(*arguments)
        return ended.code, ended.out

    old, new = program("old.py", "counts", "other"), program("new.py", "counts", "third")
    spark_runner.write(topics[0], lines(["a b"]))
    InlineQuery(load_program(Path(old)).topology, StreamsConfig(config), spark_runner.admin).run_to_end()
    assert penstock("diff", old) == (0, "nothing changes\n")
    code, answer = penstock("diff", new, "--json")
    changes = {name: what for name, what in json.loads(answer).items() if what}
    assert (code, changes.pop("differences") != []) == (0, True)
    assert changes == {"moved": ["counts"], "new": ["third"], "removed": ["other"]}
    for arguments in (("diff", new), ("diff", old, new)):
        code, shown = penstock(*arguments)
        assert code == 0
        assert "store other is no longer in the program; its state is kept until you drop it by name" in shown
        assert "store third is new and starts empty" in shown
    saved = str(tmp_path / "saved" / "one")
    assert penstock("savepoint", "take", old, saved)[1].startswith(f"Took savepoint {saved}: {application} as of epoch")
    assert "one" in penstock("savepoint", "list", str(tmp_path / "saved"))[1]
    described = json.loads(penstock("savepoint", "inspect", saved, "--json")[1])
    assert (described["location"], described["application_id"]) == (saved, application)
    assert {store["name"] for store in described["stores"]} == {"counts", "other"}
    assert json.loads(penstock("savepoint", "list", str(tmp_path / "saved"), "--json")[1]) == [described]
    [taken] = [penstock("savepoint", "take", old, str(tmp_path / "saved" / "two"), "--json")]
    assert (taken[0], json.loads(taken[1])["epoch"]) == (0, described["epoch"])
    shown = penstock("savepoint", "inspect", saved)[1]
    assert "timestamped_key_value" in shown
    assert topics[0] in shown
    elsewhere = ("--config", f"penstock.checkpoint.dir={tmp_path}/elsewhere")
    code, shown = penstock("savepoint", "restore", saved, new, "--partitions", "3", *elsewhere)
    assert (code, "Start the application to continue." in shown) == (0, True)
    code, answer = penstock("diff", new, "--json", *elsewhere)
    assert (code, json.loads(answer)["refused"] != []) == (1, True)  # the topic has two partitions
    shown = penstock("diff", old, "--checkpoint", f"{tmp_path}/elsewhere")[1]
    assert "REFUSED: store counts has its keys in 3 partitions" in shown
    again = ("--config", f"penstock.checkpoint.dir={tmp_path}/again")
    restored = penstock("savepoint", "restore", saved, new, "--rescale", "--json", *again)
    assert (restored[0], json.loads(restored[1])["location"]) == (0, saved)
    query = InlineQuery(
        load_program(Path(new)).topology,
        StreamsConfig({**config, "penstock.checkpoint.dir": f"{tmp_path}/again"}),
        spark_runner.admin,
    )
    query.run_to_end()
    assert penstock("savepoint", "drop", new, "other", *again) == (0, "Dropped the state of store other.\n")


# ---------- re-partitioned keys


def all_kinds(stream: str, other: str, table: str, rows: str, target: str) -> Topology:
    """A program with a store of every kind, in sub-topologies of topics with keys."""
    builder = StreamsBuilder()
    left, right = builder.stream(stream, consumed=TEXT), builder.stream(other, consumed=TEXT)
    grouped = left.group_by_key(Grouped.with_(key_serde=STRING, value_serde=STRING))
    grouped.count(materialized=Materialized.as_("counts"))
    windowed = grouped.windowed_by(TimeWindows.of_size_and_grace(10, 100_000))
    windows = windowed.count(materialized=Materialized.as_("windows"))
    windows.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("waiting"))
    grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 100_000)).count(
        materialized=Materialized.as_("sessions")
    )
    near = JoinWindows.of_time_difference_and_grace(20, 100_000)
    joined = StreamJoined(
        key_serde=STRING, value_serde=STRING, other_value_serde=STRING, name="near", store_name="near"
    )
    left.outer_join(right, lambda one, two: f"{one}{two}", near, stream_joined=joined).to(target, produced=TEXT_OUT)
    versions = Stores.persistent_versioned_key_value_store("versions", 100_000)
    known = builder.table(table, TEXT, Materialized.as_(versions))
    right.join(
        known,
        lambda value, row: value + row,
        joined=Joined(
            key_serde=STRING, value_serde=STRING, other_value_serde=STRING, name="late", grace_period_ms=50_000
        ),
    )
    pairs = builder.table(rows, TEXT, Materialized.as_("pairs"))
    pairs.join(
        known,
        lambda pair, row: f"{pair}{row}",
        foreign_key_extractor=lambda pair: pair,
        materialized=Materialized.as_("linked").with_key_serde(STRING).with_value_serde(STRING),
    )
    return builder.build()


def records(seed: int, partitions: int) -> list[list[InputRecord]]:
    """Return the same records for any number of partitions, of each of the four topics."""
    chosen = random.Random(seed)
    found: list[list[InputRecord]] = [[], [], [], []]
    for time in range(1_000, 1_400, 2):
        place = chosen.randrange(4)
        key = f"k{chosen.randrange(20)}"
        value = f"k{chosen.randrange(20)}" if place == 3 else f"v{time}"
        number = partition_for(key.encode(), partitions)
        found[place].append(InputRecord(key.encode(), value.encode(), time, number))
    return found


def contents(spark_runner: SparkRunner, config: StreamsConfig) -> dict[str, dict[str, object]]:
    """Return what each store has in each task. Left out is what depends on the order in which tasks take records:
    numbers of duplicates, offsets in the contexts of what waits."""
    metadata = Checkpoint(config.checkpoint_directory()).read_metadata()
    assert metadata is not None
    found: dict[str, dict[str, object]] = {}
    for layouts in metadata.shape["stores"].values():
        for name, layout in layouts.items():
            for task, entries in spark_runner.store_by_task(config, name).items():
                if not entries:
                    continue
                content: object = entries
                if name.startswith("near") and layout.startswith("window"):
                    content = sorted((key[:-4], value) for key, value in entries.items())
                elif layout.startswith("time_ordered") or "late" in name.lower():
                    content = sorted(key if layout.startswith("time_ordered_buffer") else key[:-4] for key in entries)
                found.setdefault(name, {})[task.partition("_")[2]] = content
    return found


@pytest.mark.parametrize(("before", "after"), [(2, 5), (4, 3)])
def test_state_re_partitioned_is_that_of_a_run_with_the_other_number_of_tasks(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    before: int,
    after: int,
) -> None:
    runs = {}
    for partitions in (before, after):
        topics = [unique_name(f"{name}{partitions}") for name in ("stream", "other", "table", "rows", "out")]
        spark_runner.create_topics(dict.fromkeys(topics, partitions))
        config = spark_runner.config(f"{application}-{partitions}")
        for topic, batch in zip(topics, records(before, partitions), strict=False):
            spark_runner.write(topic, batch)
        InlineQuery(all_kinds(*topics), config, spark_runner.admin).run_to_end()
        runs[partitions] = config
    savepoints.take(runs[before], str(tmp_path / "saved"))
    rescaled = spark_runner.config(f"{application}-rescaled")
    savepoints.restore(str(tmp_path / "saved"), rescaled, after)
    expected, found = contents(spark_runner, runs[after]), contents(spark_runner, rescaled)
    assert set(found) == set(expected)
    assert len(found) >= 12
    for store, tasks in expected.items():
        assert found[store] == tasks, store


def test_an_application_continues_with_more_partitions(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    config = spark_runner.config(application)
    texts = [f"w{number % 30}" for number in range(100)]
    spark_runner.write(topics[0], lines(texts, partitions=2))
    topology = counting(*topics, "counts")
    InlineQuery(topology, config, spark_runner.admin).run_to_end()
    spark_runner.admin.create_partitions(topics[0], 5)
    with pytest.raises(IncompatibleCheckpointError, match="--rescale"):
        InlineQuery(topology, config, spark_runner.admin)
    savepoints.take(config, str(tmp_path / "saved"))
    more = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "more")})
    savepoints.restore(str(tmp_path / "saved"), more, savepoints.partitions_of_stores(topology, more))
    query = InlineQuery(topology, more, spark_runner.admin)
    spark_runner.write(topics[0], lines(texts, partitions=2))
    query.run_to_end()
    expected = {word: 2 * texts.count(word) for word in texts}
    assert counts(spark_runner, more, "counts") == expected
    assert final(spark_runner.read(topics[1])) == expected


def test_a_restored_program_reads_partitions_that_were_added(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    """Its shape is that of the checkpoint, which has no position of the new partitions."""

    def write(keys: list[str], partitions: int) -> None:
        placed = [(key.encode(), partition_for(key.encode(), partitions)) for key in keys]
        spark_runner.write(topics[0], [InputRecord(key, b"", 1_000, partition) for key, partition in placed])

    builder = StreamsBuilder()
    builder.stream(topics[0], TEXT).group_by_key().count(Materialized.as_("counts"))
    topology, config = builder.build(), spark_runner.config(application)
    keys = [f"k{number}" for number in range(20)]
    write(keys, 2)
    InlineQuery(topology, config, spark_runner.admin).run_to_end()
    spark_runner.add_partitions(topics[0], 3)
    savepoints.take(config, str(tmp_path / "saved"))
    more = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "more")})
    savepoints.restore(str(tmp_path / "saved"), more, savepoints.partitions_of_stores(topology, more))
    write(keys, 3)
    query = InlineQuery(topology, more, spark_runner.admin)
    query.run_to_end()
    query.restart()
    assert counts(spark_runner, more, "counts") == dict.fromkeys(keys, 2)
    assert {task: len(entries) > 0 for task, entries in spark_runner.store_by_task(more, "counts").items()} == {
        "0_0": True,
        "0_1": True,
        "0_2": True,
    }


def test_counts_that_cannot_be_are_refused(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    config = spark_runner.config(application)
    InlineQuery(counting(*topics, "counts"), config, spark_runner.admin).run_to_end()
    savepoints.take(config, str(tmp_path / "saved"))
    other = spark_runner.config(f"{application}-other")
    with pytest.raises(StreamsError, match="has no store nothing"):
        savepoints.restore(str(tmp_path / "saved"), other, {"nothing": 3})
    with pytest.raises(StreamsError, match="expected 1 or more"):
        savepoints.restore(str(tmp_path / "saved"), other, {"counts": 0})
