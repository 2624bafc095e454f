"""A kill of the broker before any change of a partition's files leaves the partition as it was or as it was to be.

Random steps append, roll, compact, delete and restart. Before each change of a file in a step, the files are copied as
a kill would leave them, sometimes with a part of what is about to be written. `make test` goes through two seeds,
`make crash` (PENSTOCK_CRASH=all) through many; PENSTOCK_CRASH_SEED is the first.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock_broker.partition import HIGH_WATERMARK, Partition
from penstock_broker.records import EndTransactionMarker, encode_marker
from penstock_broker.wire.record_batches import TRANSACTIONAL
from tests.broker.test_cleaner import clean, committed, compacted, restarted, write

STEPS = 20
SEED = int(os.environ.get("PENSTOCK_CRASH_SEED", "2"))
ALL = os.environ.get("PENSTOCK_CRASH") == "all"
SEEDS = range(SEED, SEED + (100 if ALL else 2))
pytestmark = [pytest.mark.crash] if ALL else []

CHANGES = ("open", "pwrite", "replace", "unlink", "truncate", "mkdir")
"""Functions of os that change files, or are about to."""


class Kills:
    """Copies of a directory, one for each kill.

    Args:
        source: the directory.
        target: where the copies are made.
        choice: draws how much of a write is in the copy.
    """

    def __init__(self, source: Path, target: Path, choice: random.Random) -> None:
        self.copies: list[Path] = []
        self._source, self._target, self._choice = source, target, choice
        self._count = 0

    def during(self, step: Callable[[], object]) -> None:
        """Take a step; the copies are those of its kills."""
        self.copies.clear()
        with pytest.MonkeyPatch.context() as patch:
            real = {name: getattr(os, name) for name in CHANGES}

            def killing(name: str) -> Callable[..., object]:
                def copy_and_call(*args: object, **settings: object) -> object:
                    with patch.context() as unpatched:
                        for each, function in real.items():
                            unpatched.setattr(os, each, function)
                        self._copy(name, args)
                    return real[name](*args, **settings)

                return copy_and_call

            for name in CHANGES:
                patch.setattr(os, name, killing(name))
            step()

    def _copy(self, name: str, args: tuple[object, ...]) -> None:
        if not self._source.exists():
            return
        self._count += 1
        copy = shutil.copytree(self._source, self._target / str(self._count))
        self.copies.append(copy)
        match name, args:
            case "pwrite", (int(descriptor), memoryview() as data, int(position)):
                torn = copy / Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
                with torn.open("r+b") as file:
                    file.seek(position)
                    file.write(data[: self._choice.randrange(len(data) + 1)])


class Steps:
    """Random steps of a partition.

    Args:
        directory: its directory.
        choice: draws its configuration and the steps.
    """

    def __init__(self, directory: Path, choice: random.Random) -> None:
        self._choice = choice
        self._configs = {
            "cleanup_policy": choice.choice(["delete", "compact", "compact,delete"]),
            "segment_bytes": choice.choice([150, 300, 600]),
            "delete_retention_ms": 0,
            "retention_bytes": choice.choice([-1, 1_000]),
        }
        self._directory = directory
        self.partition = self.opened(directory)
        self._sequences: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._now = 0

    def opened(self, directory: Path) -> Partition:
        return compacted(directory, **self._configs)

    def next(self) -> Callable[[], object]:
        """Return the next step."""
        steps = [self._write, self._write_in_transaction, self._write_in_transaction, self._end, self._restart]
        removals = [lambda remove=remove: remove(self.partition) for remove in self.removals]
        return self._choice.choice(steps + removals)

    @property
    def removals(self) -> list[Callable[[Partition], object]]:
        """The steps that remove records, for any partition."""
        return [self._clean, lambda partition: partition.delete_old_segments(self._now), self._delete_records]

    def _clean(self, partition: Partition) -> None:
        self._now += 10
        if partition.config.compact:
            clean(partition, self._now)

    def _delete_records(self, partition: Partition) -> None:
        if partition.config.delete:
            partition.delete_records(HIGH_WATERMARK)

    def _records(self) -> list[tuple[bytes, bytes | None]]:
        draw = self._choice.randrange
        return [(b"%d" % draw(5), b"x" * draw(80) if draw(5) else None) for _ in range(1 + draw(3))]

    def _write(self) -> None:
        write(self.partition, *self._records())

    def _write_in_transaction(self) -> None:
        producer, records = self._choice.randrange(3), self._records()
        sequence, epoch = self._sequences.get(producer, 0), self._epochs.get(producer, 0)
        settings = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        write(self.partition, *records, attributes=TRANSACTIONAL, **settings)
        self._sequences[producer] = sequence + len(records)

    def _end(self) -> None:
        """End a transaction in version 2, or repeat its end."""
        producer, marker = self._choice.randrange(3), EndTransactionMarker(self._choice.random() < 0.5, 0)
        self._epochs[producer] = self._epochs.get(producer, 0) + 1
        self._sequences[producer] = 0
        self.partition.append_own(memoryview(encode_marker(marker, producer, self._epochs[producer], 10)))

    def _restart(self) -> None:
        if self._choice.random() < 0.5:
            self.partition.close()
        self.partition = self.opened(self._directory)


def known(partition: Partition) -> tuple[object, ...]:
    """Return what clients can learn of a partition."""
    return committed(partition), partition.offsets, sorted(partition.producers.all())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kill_before_any_change_of_a_file_leaves_a_whole_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    choice = random.Random(seed)
    steps, kills = Steps(tmp_path / "log", choice), Kills(tmp_path / "log", tmp_path, choice)
    for _ in range(STEPS):
        step, before = steps.next(), known(steps.partition)
        kills.during(step)
        allowed = (before, known(steps.partition))
        for copy in kills.copies:
            partition = steps.opened(copy)
            assert known(partition) in allowed, copy
            # What is removed now must not be missed after the next kill.
            for remove in choice.sample(steps.removals, 2):
                remove(partition)
            left, again = known(partition), restarted(partition, copy, copy.with_suffix(".again"), is_clean=False)
            assert known(steps.opened(again)) == left, copy
    steps.partition.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
