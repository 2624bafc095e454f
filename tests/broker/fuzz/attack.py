"""One run of the fuzzer: a broker, connections that send mutated requests, a healthy client, and the verdict."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock_broker.process import LOG_NAME, BrokerProcess
from tests.broker.fuzz.corpus import record
from tests.broker.fuzz.healthy import Healthy, check_records
from tests.broker.fuzz.mutations import mutated
from tests.support.ports import free_port

CONNECTIONS: Final = 8
MOST_BYTES: Final = 512 * 1024 * 1024
"""Memory that the broker may have: a few of the largest requests and responses at the same time, and what it holds.

After minutes it has 180 MB when it rests: 85 MB are Arrow, which comes with the first pattern of topics, and 35 MB the
codecs of all APIs in all versions. The number of its objects does not grow with time.
"""
RECENT_FRAMES: Final = 200
"""Requests of each connection that are kept to look at after a failure."""

_SIZE: Final = struct.Struct(">i")


@dataclass
class Verdict:
    """What a run found.

    Args:
        frames: requests that were sent. answered: connections' reads that brought an answer to them.
        most_bytes: most memory (bytes, resident) that the broker had.
        rounds: rounds of the healthy client. acknowledged: its records.
        faults: exceptions in the broker's log that only a fault of the broker explains.
    """

    frames: int = 0
    answered: int = 0
    most_bytes: int = 0
    rounds: int = 0
    acknowledged: int = 0
    faults: list[str] = field(default_factory=list)


class Attacker(threading.Thread):
    """Connects again and again, and sends requests of which most are mutated.

    Args:
        address: the broker's host and port.
        sessions: recorded requests, by connection.
        seed: what its choices follow from.
    """

    def __init__(self, address: tuple[str, int], sessions: list[list[bytes]], seed: int) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.answered = 0
        self.recent: deque[bytes] = deque(maxlen=RECENT_FRAMES)
        self.stopping = threading.Event()
        self._address = address
        self._sessions = sessions
        self._all = [frame for session in sessions for frame in session]
        self._random = random.Random(seed)

    def run(self) -> None:
        """Go on until it is stopped."""
        while not self.stopping.is_set():
            # The broker closes connections of those that send nonsense.
            with contextlib.suppress(OSError), socket.create_connection(self._address, timeout=5) as connection:
                self._one_connection(connection)

    def _one_connection(self, connection: socket.socket) -> None:
        choice = self._random
        frames = list(choice.choice(self._sessions)) if choice.random() < 0.5 else choice.choices(self._all, k=20)
        if choice.random() < 0.3:
            choice.shuffle(frames)
        start = choice.randrange(len(frames))
        for frame in frames[start : start + 30]:
            if self.stopping.is_set():
                return
            content = frame if choice.random() < 0.2 else mutated(choice, frame, self._all)
            self.recent.append(content)
            self.sent += 1
            connection.sendall(self._prefix(len(content)) + content)
            if choice.random() < 0.02:
                return
            # Most answers are read, as a broker waits for clients that do not.
            if choice.random() < 0.9:
                connection.settimeout(choice.choice((0.005, 0.02, 0.05)))
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(1 << 16):
                        return
                    self.answered += 1
                connection.settimeout(5)

    def _prefix(self, size: int) -> bytes:
        if self._random.random() < 0.98:
            return _SIZE.pack(size)
        return _SIZE.pack(self._random.choice((0, -1, 3, size + 1, max(size - 1, 0), 2**31 - 1, 100 << 20, 101 << 20)))


def resident_bytes(pid: int) -> int:
    """Return the memory of a process, or 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def attack(directory: Path, seconds: float, seed: int) -> Verdict:
    """Fuzz a broker, and check that it lives, keeps its records and answers a healthy client right.

    Args:
        directory: where its data goes; empty.
        seconds: how long.
        seed: what the choices follow from.

    Raises:
        WrongAnswerError: the healthy client saw a wrong answer, or records are lost.
        AssertionError: the broker ended.
    """
    verdict = Verdict()
    broker = BrokerProcess(directory, port=free_port())
    with broker:
        pid = broker.pid
        assert pid is not None
        sessions = record(broker.bootstrap_servers)
        healthy = Healthy(broker.bootstrap_servers)
        host, _, port = broker.bootstrap_servers.rpartition(":")
        attackers = [Attacker((host, int(port)), sessions, seed * 1_000 + number) for number in range(CONNECTIONS)]
        for each in (healthy, *attackers):
            each.start()
        try:
            end = time.monotonic() + seconds
            pause = threading.Event()

            def goes_on() -> bool:  # on a busy machine, until an attacker has had an answer
                return time.monotonic() < end or not any(one.answered for one in attackers)

            while goes_on() and broker.pid == pid and healthy.failure is None:
                pause.wait(0.2)
                verdict.most_bytes = max(verdict.most_bytes, resident_bytes(pid))
        finally:
            for one in attackers:
                one.stopping.set()
            for one in attackers:
                one.join(10)
        try:
            assert broker.pid == pid, "the broker has ended"
            healthy.stop()
        except BaseException:
            keep_frames(attackers)
            raise
        verdict.most_bytes = max(verdict.most_bytes, resident_bytes(pid))
        verdict.frames = sum(one.sent for one in attackers)
        verdict.answered = sum(one.answered for one in attackers)
        verdict.rounds, verdict.acknowledged = healthy.rounds, healthy.acknowledged
        broker.kill()
        broker.start()
        check_records(broker.bootstrap_servers, healthy.acknowledged)
    verdict.faults = faults_in((directory / LOG_NAME).read_text(errors="replace"))
    return verdict


def keep_frames(attackers: list[Attacker]) -> None:
    """Write the last requests of each connection into files, and say where."""
    directory = Path(tempfile.mkdtemp(prefix="fuzz-frames-"))
    for number, one in enumerate(attackers):
        (directory / str(number)).write_text("".join(f"{frame.hex()}\n" for frame in one.recent))
    print(f"the last requests are in {directory}")


def faults_in(log: str) -> list[str]:
    """Return the different exceptions in the broker's log: where they were raised, and their message."""
    found: dict[str, None] = {}
    for text in log.split("Traceback (most recent call last):\n")[1:]:
        lines = text.splitlines()
        frames = [line.strip() for line in lines if line.startswith("  File")]
        message = next((line for line in lines if line and not line.startswith(" ")), "")
        found[f"{message}\n    {frames[-1] if frames else ''}"] = None
    return list(found)
