"""A checkpoint is damaged file by file: each run ends exact, or in an error that names the file and the way out.

One application is left with an epoch half committed. Each trial begins with a copy of its checkpoint and of what Kafka
knows to be committed, and damages one or two files, before the start or behind it. A sample by seed is tried;
PENSTOCK_CRASH=all tries every file in every way, and PENSTOCK_CRASH_SEED repeats a sample.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.config import StreamsConfig
from penstock.errors import StreamsError, TaskCorruptedError
from penstock.host.spark.protocol.failures import QueryFailedError, decode_failure
from penstock.host.spark.protocol.transactions import commits_topic
from penstock.record import TopicPartition
from tests.host.spark.crashes import Crashes, KilledError
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_changes import counts
from tests.host.support import lines
from tests.host.test_topologies import word_count
from tests.support.seeds import seed_of_run

ALL = os.environ.get("PENSTOCK_CRASH") == "all"
SEED = seed_of_run("PENSTOCK_CRASH_SEED", fixed=0)
SAMPLE, PAIRS = 16, 6
MOST_EPOCHS = 10

WORDS = ("a b c d", "b c e", "a f g h i", "j k l m n o p q r s t u v w")


def _flip_a_bit(chosen: random.Random, content: bytes) -> bytes:
    flipped = bytearray(content)
    flipped[chosen.randrange(len(flipped))] ^= 1 << chosen.randrange(8)
    return bytes(flipped)


def _change_a_digit(chosen: random.Random, content: bytes) -> bytes:
    digits = [place for place, byte in enumerate(content) if byte in b"0123456789"]
    if not digits:
        return _flip_a_bit(chosen, content)
    place = chosen.choice(digits)
    digit = b"%d" % ((int(chr(content[place])) + chosen.randrange(1, 10)) % 10)
    return content[:place] + digit + content[place + 1 :]


DEEDS: dict[str, Callable[[random.Random, bytes], bytes | None]] = {
    "deleted": lambda chosen, content: None,
    "emptied": lambda chosen, content: b"",
    "truncated": lambda chosen, content: content[: chosen.randrange(len(content))],
    "one bit": _flip_a_bit,
    "one digit": _change_a_digit,
}


class Damage(NamedTuple):
    """What is done to a file, by its place in the checkpoint."""

    file: str
    deed: str

    def do(self, directory: Path, chosen: random.Random) -> None:
        path = directory / self.file
        if not path.exists():  # the start has cleared it away
            return
        content = path.read_bytes()
        changed = DEEDS[self.deed](chosen, content) if content else None
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)

    def is_named_in(self, text: str) -> bool:
        """Return whether a message names the file, at least by the part of its name that tells it from others."""
        return self.file.rpartition("/")[2].partition(".")[0] in text


class HalfCommitted:
    """An application with an epoch half committed, that can be brought back there."""

    def __init__(self, runner: SparkRunner, application: str, topics: tuple[str, str], directory: Path) -> None:
        self.runner, self.topics = runner, topics
        self.config: StreamsConfig = runner.config(application)
        self._checkpoint = Path(self.config.checkpoint_directory())
        self._kept = directory / "kept"
        self._group = commits_topic(application)

    def keep(self) -> None:
        """Take the application as it is now for the one to be brought back."""
        shutil.copytree(self._checkpoint, self._kept)
        admin = self.runner.admin
        markers = [TopicPartition(self._group, number) for number in range(admin.topics()[self._group])]
        self._markers = admin.committed_offsets(self._group, markers, stable=False)
        self._output = self._ends()

    def files(self) -> list[str]:
        """Return the files of the checkpoint, but for the lock, which is empty."""
        found = (path.relative_to(self._kept) for path in self._kept.rglob("*") if path.is_file())
        return sorted(str(path) for path in found if path.name != "lock")

    def run(
        self, damages: Sequence[Damage], behind_start: bool, seed: str
    ) -> tuple[Counter[bytes], dict[str, int] | None]:
        """Bring it back, do the damage and run to the end; return what was written to Kafka, and what is in the store,
        as far as it can be read."""
        chosen = random.Random(seed)
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        shutil.copytree(self._kept, self._checkpoint)
        self.runner.admin.commit_offsets(self._group, self._markers)
        begun = self._ends()
        if behind_start:
            query = self._start()
        for damage in damages:
            damage.do(self._checkpoint, chosen)
        if not behind_start:
            query = self._start()
        epochs = sum(1 for _ in itertools.takewhile(bool, (query.epoch() for _ in range(MOST_EPOCHS))))
        assert epochs < MOST_EPOCHS, "it goes on for ever"
        written = Counter(
            (record.key or b"") + b" " + (record.value or b"")
            for tp, end in self._ends().items()
            for record in self.runner.fetch(tp, begun[tp], end)
        )
        return written, self._store()

    def _store(self) -> dict[str, int] | None:
        """Return what is in the store, None if a segment is damaged which no task had to read."""
        try:
            return counts(self.runner, self.config, "counts")
        except (TaskCorruptedError, AssertionError):
            return None

    def _start(self) -> InlineQuery:
        return InlineQuery(word_count(*self.topics), self.config, self.runner.admin)

    def _ends(self) -> dict[TopicPartition, int]:
        target = self.topics[1]
        partitions = [TopicPartition(target, number) for number in range(self.runner.admin.topics()[target])]
        return self.runner.admin.end_offsets(partitions, read_committed=True)


@pytest.fixture
def half_committed(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    tmp_path: Path,
) -> HalfCommitted:
    subject = HalfCommitted(spark_runner, application, topics, tmp_path)
    query = subject._start()
    for text in WORDS[:-1]:
        spark_runner.write(topics[0], lines(text.split(), partitions=3))
        query.run_to_end()
    spark_runner.write(topics[0], lines(WORDS[-1].split(), partitions=3))
    crashes(at="transaction.after")
    with pytest.raises(KilledError):
        query.run_to_end()
    subject.keep()
    return subject


def trials(files: Sequence[str]) -> Iterator[tuple[list[Damage], bool]]:
    """Yield what to damage, and whether behind the start."""
    single = [[Damage(file, deed)] for file in files for deed in DEEDS]
    pairs = [
        [Damage(one, deed), Damage(other, another)]
        for (one, other), deed, another in itertools.product(itertools.combinations(files, 2), DEEDS, DEEDS)
    ]
    chosen = random.Random(SEED)
    for damages in single if ALL else chosen.sample(single, min(SAMPLE, len(single))):
        yield damages, False
    for damages in chosen.sample(pairs, 20 * PAIRS if ALL else PAIRS):
        yield damages, chosen.random() < 0.3


@pytest.mark.slow
@pytest.mark.one_broker
@pytest.mark.timeout(3600 if ALL else 1200)
def test_a_damaged_checkpoint_continues_exactly_or_says_which_file_and_what_to_do(
    half_committed: HalfCommitted,
) -> None:
    expected = half_committed.run([], False, "")
    assert sum(expected[0].values()) > 0
    assert expected[1] == Counter(" ".join(WORDS).split())
    told = 0
    for number, (damages, behind_start) in enumerate(trials(half_committed.files())):
        what = f"PENSTOCK_CRASH_SEED={SEED}, trial {number}: {damages}, behind the start: {behind_start}"
        try:
            found = half_committed.run(damages, behind_start, f"{SEED} {number}")
        except (StreamsError, QueryFailedError) as error:
            text = str(decode_failure(error.failure)[0] if isinstance(error, QueryFailedError) else error)
            assert any(damage.is_named_in(text) for damage in damages), f"{what}: {text}"
            assert re.search("[Rr]estore|penstock reset", text), f"{what}: {text}"
            told += 1
        else:
            assert found[0] == expected[0], what
            assert found[1] in (expected[1], None), what
    print(f"{told} of {number + 1} trials ended in an error")
