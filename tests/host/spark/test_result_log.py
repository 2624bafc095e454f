"""With `penstock.result.log`, functions that are not deterministic have one result, whatever is killed and when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock import Grouped, Materialized, Produced, StreamsBuilder, Topology
from tests.host.spark.crashes import Crashes, answer_by_chance, is_killed
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_park import STRING, TEXT
from tests.support.power import Disk

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 2)]

RECORDS = 24


def numbers(source: str, target: str, calls: Path, seed: int) -> Topology:
    """Return a topology that writes numbers to a topic, and stores them by last digit in another sub-topology."""
    builder = StreamsBuilder()
    numbered = builder.stream(source, TEXT).map_values(partial(answer_by_chance, calls, seed, 0.3), named="numbered")
    numbered.to(target, Produced.with_(STRING, STRING))
    numbered.group_by(lambda _, value: value[-1], Grouped.with_(key_serde=STRING, value_serde=STRING)).aggregate(
        str,
        lambda _key, value, before: f"{before}{value},",
        materialized=Materialized.as_("numbers").with_key_serde(STRING).with_value_serde(STRING),
    )
    return builder.build()


@pytest.mark.parametrize("where", ["disk", "memory", "disk without power"])
@pytest.mark.parametrize("seed", range(3))
def test_each_record_has_one_result_in_topics_and_state(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    where: str,
) -> None:
    disk = Disk(monkeypatch) if where == "disk without power" else None
    letters = unique_name("letters")
    spark_runner.create_topics({letters: 2})
    config = spark_runner.config(
        application,
        {
            "penstock.result.log": True,
            "penstock.determinism.check.epochs": 1,
            "processing.exception.handler": "LogAndContinueProcessingExceptionHandler",
            "errors.dead.letter.queue.topic.name": letters,
            **({"penstock.checkpoint.dir": f"fsspec+memory://{tmp_path}/checkpoint"} if where == "memory" else {}),
        },
    )
    query = InlineQuery(numbers(*topics, tmp_path / "calls", seed), config, spark_runner.admin)
    installed = crashes(seed, 0.02, 10)
    for part in range(0, RECORDS, 6):
        numbers_written = range(part, part + 6)
        spark_runner.write(topics[0], [InputRecord(b"%d" % n, b"v%d" % n, n, n % 2) for n in numbers_written])
        installed.at = "transaction.after"  # one sink partition has committed, another has not
        while is_killed(query):
            if disk is not None:
                disk.lose_power(Path(config.checkpoint_directory()), Path(config["state.dir"]) / application / "bases")
            query.restart()
    written = [each.value for each in spark_runner.read(topics[1]) if each.value is not None]
    dead = [each.value for each in spark_runner.read(letters) if each.value is not None]
    assert sorted([*dead, *(value.partition(b" ")[0] for value in written)]) == sorted(
        b"v%d" % number for number in range(RECORDS)
    )
    stored = spark_runner.store(config, "numbers")
    assert sorted(b"".join(value[8:] for value in stored.values()).split(b",")[:-1]) == sorted(written)
    assert installed.struck["transaction.after"] >= 3
    assert dead


def marked(mark: str, value: str) -> str:
    """Return the value with the mark of a program."""
    return f"{value} {mark}"


def marking(source: str, target: str, mark: str) -> Topology:
    """Return a topology that marks values."""
    builder = StreamsBuilder()
    builder.stream(source, TEXT).map_values(partial(marked, mark), named="marked").to(
        target, Produced.with_(STRING, STRING)
    )
    return builder.build()


@pytest.mark.parametrize(("killed_at", "mark"), [("transaction.before", b"new"), ("transaction.after", b"old")])
def test_a_changed_program_takes_results_of_the_former_one_only_for_its_half_committed_epoch(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    killed_at: str,
    mark: bytes,
) -> None:
    config = spark_runner.config(application, {"penstock.result.log": True})
    query = InlineQuery(marking(*topics, "old"), config, spark_runner.admin)
    spark_runner.write(topics[0], [InputRecord(b"%d" % n, b"v%d" % n, n, n % 2) for n in range(6)])
    crashes(at=killed_at)
    assert is_killed(query)
    query.change(marking(*topics, "new"))
    query.run_to_end()
    written = [each.value for each in spark_runner.read(topics[1]) if each.value is not None]
    assert sorted(written) == [b"v%d %s" % (n, mark) for n in range(6)]
