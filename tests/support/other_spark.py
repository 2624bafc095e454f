"""Another Spark than that of this environment, for tests that run on it in separate processes.

It is installed once, without anything else, into the user's cache directory; `environment` puts it before the packages
of this environment, so that all else is what requirements.lock pins.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.kafka import cache_root

_INSTALL_TIMEOUT_SECONDS: Final = 900


class SparkUnavailableError(Exception):
    """A version of Spark cannot be had on this machine; the message says why."""


def installed_spark(version: str) -> Path:
    """Return a directory with pyspark `version` and what it brings; installs it the first time (450 MB).

    Raises:
        SparkUnavailableError: pip cannot install it.
    """
    directory = cache_root() / f"pyspark-{version}-python{sys.version_info.major}.{sys.version_info.minor}"
    packages = directory / "packages"
    directory.mkdir(parents=True, exist_ok=True)
    # Several test processes may come here at the same time; one of them installs.
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not packages.exists():
            _install(version, packages)
    return packages


def _install(version: str, packages: Path) -> None:
    with tempfile.TemporaryDirectory(dir=packages.parent) as partial:
        target = Path(partial) / "packages"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--use-pep517"]
        try:
            done = subprocess.run(
                [*command, "--target", str(target), f"pyspark=={version}"],
                capture_output=True,
                text=True,
                timeout=_INSTALL_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SparkUnavailableError(
                f"pip took longer than {_INSTALL_TIMEOUT_SECONDS} s for pyspark {version}"
            ) from error
        if done.returncode != 0:
            raise SparkUnavailableError(f"pip cannot install pyspark {version}: {done.stderr[-500:].strip()}")
        target.rename(packages)


def require_spark(version: str) -> Path:
    """Return the directory of pyspark `version`; skip the calling test, with the reason, where it cannot be had.

    With PENSTOCK_REQUIRE_SPARK=1 in the environment it fails instead, so that a machine which must have it cannot pass
    by skipping.
    """
    try:
        return installed_spark(version)
    except SparkUnavailableError as error:
        if os.environ.get("PENSTOCK_REQUIRE_SPARK") == "1":
            pytest.fail(f"PENSTOCK_REQUIRE_SPARK=1, but there is no pyspark {version}: {error}")
        pytest.skip(f"no pyspark {version}: {error}")


def environment(packages: Path) -> Mapping[str, str]:
    """Return the environment of a process that has `packages` before all that is installed."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("PENSTOCK_", "PYTEST_", "SPARK_"))}
    return {**own, "PYTHONPATH": str(packages)}
