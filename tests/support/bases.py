"""Programs and readers of bases on disk."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from penstock.state.api import Base

SMALL_MAP = 1 << 16


def run(program: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `program` in another process, with a path and more arguments."""
    return subprocess.run(
        [sys.executable, "-c", program, str(path), *arguments], capture_output=True, text=True, timeout=240, check=False
    )


GROW = """
import sys
from penstock.state.lmdb import LmdbBase
base = LmdbBase(sys.argv[1], 1 << 16)
base.apply({"s": {b"%05d" % n: bytes(300) for n in range(2000)}}, sys.argv[2].encode())
print(base.stamp().decode())
"""


def commit_of(number: int) -> dict[str, dict[bytes, bytes | None]]:
    """Return the changes of one commit; equal numbers give equal changes."""
    rng = random.Random(number)
    keys = rng.sample(range(400), 150)
    return {
        "s": {b"%03d" % key: None if rng.random() < 0.3 else rng.randbytes(rng.randrange(600)) for key in keys},
        "t": {b"last": b"%d" % number},
    }


def entries(base: Base, store: str = "s", reverse: bool = False) -> list[tuple[bytes, bytes]]:
    """Return all entries of a store."""
    return list(base.view(store).range(None, None, reverse))
