"""Whatever happens to an application with joins, windows, a join by foreign key and a repartition, it leaves what an
undisturbed run of the test driver leaves: outputs under read_committed (each record once), stores, positions.

`make crash` does the first deed of a schedule, on a real Kafka or on the embedded broker by seed; `make chaos
SEED=7 MINUTES=30` goes on for so long, on a real Kafka. PENSTOCK_CHAOS_MASTER says where, for example
`local-cluster[2,1,1024]`, where executors are killed too, and PENSTOCK_CHAOS_BROKERS=3 on how many brokers, or
`embedded` for the embedded one. Losses of power and full disks need a machine that lets a test mount a disk.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from penstock.record import TopicPartition
from tests.chaos import deeds, program
from tests.chaos.chaos import Chaos
from tests.chaos.expected import by_key, check_calls, is_strictly_growing, living, undisturbed
from tests.chaos.run import BROKERS, MINUTES, SEED, Broker
from tests.host.spark.support import SparkRunner
from tests.support.chaos_brokers import EmbeddedBroker, KafkaBrokers
from tests.support.kafka import kafka_is_at_hand
from tests.support.loop_disk import LoopDisk, why_not

MASTER = os.environ.get("PENSTOCK_CHAOS_MASTER") or "local[2,4]"
DEEDS_OF_A_SAMPLE = 1
DISK_MEGABYTES = 1024
RUNS_OF_A_DEED = 2
"""How often a deed may end the process that makes the calls."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.timeout(900 + 120 * MINUTES),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found and killed by way of /proc"),
]


@pytest.fixture
def chaos_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own, for it is killed; a sample takes the embedded one where there is no Kafka."""
    is_embedded = BROKERS == "embedded" or not (MINUTES or kafka_is_at_hand())
    with EmbeddedBroker(tmp_path / "broker") if is_embedded else KafkaBrokers(SEED, int(BROKERS)) as broker:
        yield broker


@pytest.fixture
def chaos_disk(tmp_path: Path) -> Iterator[LoopDisk | None]:
    """A disk of the test's own, None where there can be none: then its power is not lost, and it is not filled."""
    if why_not() is not None:
        yield None
        return
    with LoopDisk(tmp_path, DISK_MEGABYTES) as disk:
        yield disk


@pytest.mark.long
@pytest.mark.parametrize("seed", [SEED])
def test_chaos_leaves_no_trace(
    seed: int,
    chaos_broker: Broker,
    chaos_disk: LoopDisk | None,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    runner = SparkRunner(chaos_broker.bootstrap_servers, tmp_path)
    schedule = deeds.schedule(seed, MASTER.startswith("local-cluster"), chaos_disk is not None)
    deadline = time.monotonic() + 60 * MINUTES
    print(f"SEED={seed} MASTER={MASTER} BROKERS={BROKERS} disk of its own: {why_not() or 'yes'}")
    try:
        with Chaos(seed, chaos_broker, runner, unique_name("chaos"), tmp_path, MASTER, chaos_disk) as chaos:
            chaos.live(schedule, lambda done: time.monotonic() > deadline if MINUTES else done == DEEDS_OF_A_SAMPLE)
        epochs = runner.manifest(chaos.config).epoch
        print(f"{chaos.deeds.total()} deeds, {epochs} epochs, {len(chaos.rows)} records: {dict(chaos.deeds)}")
        check(chaos, runner)
    finally:
        runner.close()


def check(chaos: Chaos, runner: SparkRunner) -> None:
    written, stores = undisturbed(chaos.rows)
    found = {
        name: [(record.key, record.value) for record in runner.read(f"{chaos.name}-{name}")] for name in program.OUTPUTS
    }
    for name in (*program.GROWING, *program.TABLES):
        assert living(found[name]) == living(written[name]), name
    for name in program.JOINED:
        assert set(found[name]) == set(written[name]), name
    assert chaos.is_exactly_once()
    assert [name for name in program.GROWING if not is_strictly_growing(found[name])] == []
    assert [name for name in program.JOINED if Counter(found[name]) != Counter(written[name])] == []
    assert max(Counter(found[program.TICKS]).values()) == 1  # a task makes a punctuation of one time once
    assert by_key(found[program.TRIED]) == by_key(written[program.TRIED])
    most = (1 + RUNS_OF_A_DEED * chaos.deeds.total()) * program.MADE_AGAIN
    check_calls(chaos.rows, lambda name: runner.read(f"{chaos.name}-{name}"), chaos.calls, most)
    letters = {
        key: (int.from_bytes(value[8:], "big"), int.from_bytes(value[:8], "big"))
        for key, value in chaos.state(program.LETTERS_STORE).items()
    }
    assert letters == stores[program.LETTERS_STORE]
    orders = {
        key: (value[8:].decode(), int.from_bytes(value[:8], "big"))
        for key, value in chaos.state(program.ORDERS_STORE).items()
    }
    assert orders == stores[program.ORDERS_STORE]
    inputs = [
        TopicPartition(f"{chaos.name}-{name}", p) for name, count in chaos.partitions.items() for p in range(count)
    ]
    ends = runner.admin.end_offsets(inputs, read_committed=True)
    reached = runner.manifest(chaos.config).offsets
    assert {tp: reached[tp.topic][tp.partition] for tp in inputs} == ends


def test_every_kind_of_deed_comes_once_before_it_comes_again() -> None:
    kinds = 1 + len(deeds.KILLS) + 13
    drawn = list(islice(deeds.schedule(3, cluster=True, disk=True), 2 * kinds))
    assert len(set(drawn[:kinds])) == kinds
    assert Counter(drawn) == dict.fromkeys(drawn, 2)
    assert drawn == list(islice(deeds.schedule(3, cluster=True, disk=True), 2 * kinds))
