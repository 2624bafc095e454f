"""An application, with its embedded broker on the same disk, loses its power again and again, at random moments.

`make crash` goes through ten losses for each host. Needs a machine that lets a test mount a disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.power import DISK_MEGABYTES, FORCED, PowerTrial, words_of
from tests.crash.seed import SEED
from tests.support.loop_disk import LoopDisk, why_not

LOSSES = 10

pytestmark = [
    pytest.mark.crash,
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(why_not() is not None, reason=f"no disk can be mounted: {why_not()}"),
    pytest.mark.parametrize("host", ["threads", pytest.param("spark", marks=pytest.mark.spark)]),
]

Trial = Callable[..., PowerTrial]


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    """A function that begins a trial on a disk of its own."""
    with LoopDisk(tmp_path / "power", DISK_MEGABYTES) as disk:
        begun: list[PowerTrial] = []

        def begin(host: str, configs: dict[str, str]) -> PowerTrial:
            print(f"PENSTOCK_CRASH_SEED={SEED}")
            begun.append(PowerTrial(host, configs, disk, tmp_path, SEED))
            return begun[0]

        yield begin
        for one in begun:
            with one:
                pass


def test_with_forced_topics_each_acknowledged_record_counts_exactly_once(trial: Trial, host: str) -> None:
    one = trial(host, FORCED)
    one.live(LOSSES)
    written = one.input()
    for partition, lines in one.acknowledged.items():
        assert set(lines) <= set(written[partition])
    counts = words_of(written)
    one.wait_for_counts(counts)
    found = Counter((record.key, int.from_bytes(record.value or b"", "big")) for record in one.output())
    assert found == Counter((word.encode(), count) for word, most in counts.items() for count in range(1, most + 1))


def test_without_forced_writes_topics_hold_what_was_acknowledged_in_its_order(trial: Trial, host: str) -> None:
    one = trial(host, {})
    one.live(LOSSES)
    for partition, lines in one.input().items():
        kept = set(lines)
        assert len(kept) == len(lines)
        acknowledged = [line for line in one.acknowledged[partition] if line in kept]
        kept.intersection_update(acknowledged)
        assert [line for line in lines if line in kept] == acknowledged
