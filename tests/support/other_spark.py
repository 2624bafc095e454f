"""Another Spark, or other versions of packages, than those of this environment, for tests in separate processes.

They are installed once, without anything else, into the user's cache directory; `environment` puts them before the
packages of this environment, so that all else is what requirements.lock pins.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.kafka import cache_root

_INSTALL_TIMEOUT_SECONDS: Final = 900


class PackagesUnavailableError(Exception):
    """Versions of packages cannot be had on this machine; the message says why."""


def installed(name: str, *requirements: str) -> Path:
    """Return a directory with packages and what they bring; installs them the first time.

    name: that of the directory, which stands for the requirements.

    Raises:
        PackagesUnavailableError: pip cannot install them.
    """
    directory = cache_root() / f"{name}-python{sys.version_info.major}.{sys.version_info.minor}"
    packages = directory / "packages"
    directory.mkdir(parents=True, exist_ok=True)
    # Several test processes may come here at the same time; one of them installs.
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not packages.exists():
            _install(requirements, packages)
    return packages


def _install(requirements: Sequence[str], packages: Path) -> None:
    with tempfile.TemporaryDirectory(dir=packages.parent) as partial:
        target = Path(partial) / "packages"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--use-pep517"]
        try:
            done = subprocess.run(
                [*command, "--target", str(target), *requirements],
                capture_output=True,
                text=True,
                timeout=_INSTALL_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PackagesUnavailableError(
                f"pip took longer than {_INSTALL_TIMEOUT_SECONDS} s for {', '.join(requirements)}"
            ) from error
        if done.returncode != 0:
            raise PackagesUnavailableError(
                f"pip cannot install {', '.join(requirements)}: {done.stderr[-500:].strip()}"
            )
        target.rename(packages)


def require_spark(version: str) -> Path:
    """Return the directory of pyspark `version` (450 MB), or skip the calling test: see `require`."""
    return require(f"pyspark-{version}", f"pyspark=={version}")


def require(name: str, *requirements: str) -> Path:
    """Return the directory of packages; skip the calling test, with the reason, where they cannot be had.

    With PENSTOCK_REQUIRE_SPARK=1 in the environment it fails instead, so that a machine which must have it cannot pass
    by skipping.
    """
    try:
        return installed(name, *requirements)
    except PackagesUnavailableError as error:
        if os.environ.get("PENSTOCK_REQUIRE_SPARK") == "1":
            pytest.fail(f"PENSTOCK_REQUIRE_SPARK=1, but there is no {name}: {error}")
        pytest.skip(f"no {name}: {error}")


def environment(packages: Path) -> Mapping[str, str]:
    """Return the environment of a process that has `packages` before all that is installed."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("PENSTOCK_", "PYTEST_", "SPARK_"))}
    return {**own, "PYTHONPATH": str(packages)}
