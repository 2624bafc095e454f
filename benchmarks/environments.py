"""What rivals need on this machine: environments of Python, and jars from Maven, in the user's cache directory.

Each is made the first time, and used again by later runs. A rival that cannot be installed raises UnavailableError.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_INSTALL_SECONDS: Final = 900


class UnavailableError(Exception):
    """A contestant cannot run on this machine, or cannot do what is asked; the text says why."""


def environment(*requirements: str) -> Path:
    """Return the Python of an environment with `requirements`, which is made the first time."""
    name = requirements[0].replace("=", "-").replace("[", "-").replace("]", "")
    directory = _cache() / f"benchmark-{name}-{sys.version_info.major}.{sys.version_info.minor}"
    python, done = directory / "bin" / "python", directory / "installed"
    with _only_one(directory.name):
        if not done.exists() or done.read_text() != " ".join(requirements):
            venv.create(directory, clear=True, with_pip=True)
            _run([str(python), "-m", "pip", "install", "--quiet", *requirements], "pip", " ".join(requirements))
            done.write_text(" ".join(requirements))
    return python


def jars(*artifacts: str) -> list[Path]:
    """Return the jars of artifacts (`group:name:version`), which Maven downloads the first time."""
    with _only_one("benchmark-jars"):
        return [_jar(artifact) for artifact in artifacts]


def _jar(artifact: str) -> Path:
    _, name, version = artifact.split(":")
    directory = _cache() / "benchmark-jars"
    jar = directory / f"{name}-{version}.jar"
    if not jar.exists():
        if shutil.which("mvn") is None:
            raise UnavailableError(f"Maven (mvn) is needed to download {artifact}")
        directory.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as partial:
            copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={partial}"]
            _run(copy, "Maven", artifact)
            (Path(partial) / jar.name).rename(jar)
    return jar


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextmanager
def _only_one(name: str) -> Iterator[None]:
    """Wait until no other process installs `name`."""
    with (_cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], installer: str, wanted: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr.strip() or error.stdout.strip() or "no reason given").splitlines()
        raise UnavailableError(f"{installer} cannot install {wanted}: {lines[-1][:200]}") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{installer} took longer than {_INSTALL_SECONDS} s for {wanted}") from error
