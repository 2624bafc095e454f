"""A small sample of the fuzzer; `python -m tests.broker.fuzz` runs it for longer."""

from __future__ import annotations

import random
from pathlib import Path

from tests.broker.fuzz.attack import MOST_BYTES, attack, faults_in
from tests.broker.fuzz.mutations import mutated

SECONDS = 3
SEED = 1


def test_a_healthy_client_notices_nothing_of_mutated_requests(tmp_path: Path) -> None:
    verdict = attack(tmp_path, SECONDS, SEED)
    assert verdict.faults == []
    assert verdict.rounds > 0
    assert verdict.frames > verdict.answered > 0
    assert verdict.most_bytes < MOST_BYTES


def test_a_seed_gives_the_same_requests() -> None:
    def some() -> list[bytes]:
        choice = random.Random(SEED)
        return [
            mutated(choice, b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x01a\xff\xff\xff\xff", [b"x" * 50]) for _ in "abcdef"
        ]

    assert some() == some()
    assert len(set(some())) > 1


def test_exceptions_of_the_broker_are_found_in_its_log() -> None:
    traceback = 'Traceback (most recent call last):\n  File "fetch.py", line 1, in start\n    x\nKeyError: 1\n'
    assert faults_in(f"a line\nERROR a request failed\n{traceback}{traceback}") == [
        'KeyError: 1\n    File "fetch.py", line 1, in start'
    ]
