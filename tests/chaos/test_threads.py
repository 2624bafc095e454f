"""Whatever happens to three instances of the threads host, they leave what an undisturbed run of the test driver
leaves: outputs under read_committed (each record once), stores, changelogs, positions.

`make test-slow` does the first deeds of a schedule on the embedded broker; `make chaos HOST=threads SEED=7 MINUTES=30`
goes on for so long, on a real Kafka of three brokers, or of BROKERS=1, or BROKERS=embedded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.record import TopicPartition
from tests.chaos import deeds, program
from tests.chaos.expected import Rows, by_key, check_calls, is_strictly_growing, living, undisturbed
from tests.chaos.instances import INSTANCES, GroupChaos
from tests.chaos.run import BROKERS, MINUTES, SEED, Broker
from tests.host.spark.support import SparkRunner
from tests.support.chaos_brokers import EmbeddedBroker, KafkaBrokers

DEEDS_OF_A_SAMPLE = 2
MOVES_OF_A_DEED = 2
"""How often a deed may end the calls of all tasks: as they leave an instance, and as they come back to it."""

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900 + 120 * MINUTES)]


@pytest.fixture
def chaos_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own, for it is killed; of a sample the embedded one."""
    is_embedded = not MINUTES or BROKERS == "embedded"
    with EmbeddedBroker(tmp_path / "broker") if is_embedded else KafkaBrokers(SEED, int(BROKERS)) as broker:
        yield broker


@pytest.mark.parametrize("seed", [SEED])
def test_chaos_leaves_no_trace(
    seed: int, chaos_broker: Broker, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    runner = SparkRunner(chaos_broker.bootstrap_servers, tmp_path)
    schedule = deeds.in_turns(seed, deeds.OF_INSTANCES)
    deadline = time.monotonic() + 60 * MINUTES
    print(f"SEED={seed} BROKERS={BROKERS}")
    try:
        with GroupChaos(seed, chaos_broker, runner, unique_name("chaos"), tmp_path) as chaos:
            chaos.live(schedule, lambda done: time.monotonic() > deadline if MINUTES else done == DEEDS_OF_A_SAMPLE)
            print(f"{chaos.deeds.total()} deeds, {len(chaos.rows)} records: {dict(chaos.deeds)}")
            check(chaos, runner)
    finally:
        runner.close()


def check(chaos: GroupChaos, runner: SparkRunner) -> None:
    written, stores = undisturbed(chaos.rows)
    names = [name for name in program.OUTPUTS if name != "more"]

    def found_in(name: str) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in runner.read(f"{chaos.name}-{name}")]

    def all_is_there() -> bool:
        tables = all(living(found_in(name)) == living(written[name]) for name in (*program.GROWING, *program.TABLES))
        complete = (*program.JOINED, program.TRIED, *program.CALLING)
        return tables and all(len(found_in(name)) >= len(written[name]) for name in complete)

    chaos.wait_for(all_is_there)
    ends = runner.admin.end_offsets(chaos.inputs(), read_committed=True)
    chaos.wait_for(lambda: reached(chaos, runner) == ends)
    expected = sorted((name, key.decode(), *entry) for name, store in stores.items() for key, entry in store.items())
    chaos.wait_for(lambda: chaos.stores() == expected)
    chaos.close()
    found: Rows = {name: found_in(name) for name in names}
    assert [name for name in program.GROWING if not is_strictly_growing(found[name])] == []
    assert [name for name in program.JOINED if Counter(found[name]) != Counter(written[name])] == []
    assert max(Counter(found[program.TICKS]).values()) == 1  # a task makes a punctuation of one time once
    for name in (program.LETTERS_STORE, program.ORDERS_STORE, "minutes-store"):
        changelog = f"{name}-changelog"
        assert living(found_in(changelog)) == living(written[changelog]), changelog
    assert by_key(found[program.TRIED]) == by_key(written[program.TRIED])
    most = MOVES_OF_A_DEED * (1 + chaos.deeds.total()) * INSTANCES * program.MADE_AGAIN
    check_calls(chaos.rows, lambda name: runner.read(f"{chaos.name}-{name}"), chaos.calls, most)


def reached(chaos: GroupChaos, runner: SparkRunner) -> dict[TopicPartition, int]:
    """Return the committed positions in the input."""
    committed = runner.admin.committed_offsets(chaos.name, chaos.inputs(), stable=False)
    return {partition: each.offset for partition, each in committed.items()}
