"""The set-up of a clone: the checks before anything is downloaded, and their messages."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from scripts import bootstrap

SCRIPTS = Path(bootstrap.__file__).parent


def java(directory: Path, said: str, code: int = 0) -> Path:
    """Create a java that prints `said` as its version."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "java"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'SAID'\n{said}\nSAID\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_281"', 8),
        ("no version here", None),
    ],
)
def test_the_version_of_java_is_read(text: str, version: int | None) -> None:
    assert bootstrap.java_version(text) == version


def test_no_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(bootstrap.BootstrapError, match=r"no java was found.*Install Java 17"):
        bootstrap.check_java()


def test_too_old_a_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java(tmp_path / "bin", 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(bootstrap.BootstrapError, match="is Java 11"):
        bootstrap.check_java()


def test_a_java_home_without_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(bootstrap.BootstrapError, match=r"JAVA_HOME=.*does not start"):
        bootstrap.check_java()


def test_java_of_java_home_has_precedence_over_that_of_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java(tmp_path / "old", 'java version "1.8.0"')
    java(tmp_path / "home" / "bin", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(tmp_path / "old"), prepend=os.pathsep)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    bootstrap.check_java()


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_too_little_room_is_reported_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 100 * 1024**2))
    with pytest.raises(bootstrap.BootstrapError, match=r"needs [\d.]+ GiB free .* there are 0\.1 GiB"):
        bootstrap.check_disk()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A directory with the scripts and a lock file that names nothing."""
    for name in ("bootstrap.sh", "bootstrap.py"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        shutil.copy(SCRIPTS / name, tmp_path / "scripts" / name)
    (tmp_path / "requirements.lock").write_text("")
    for project in (tmp_path, tmp_path / "packages" / "penstock-broker"):
        project.mkdir(parents=True, exist_ok=True)
        (project / "pyproject.toml").write_text("")
    return tmp_path


def run(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(clone / "scripts" / "bootstrap.sh")],
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_failure_is_one_message_and_a_code(clone: Path) -> None:
    failed = run(clone, JAVA_HOME="/nowhere")
    assert failed.returncode == 1
    assert "Java 17" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (clone / ".venv").exists()


def test_no_python_is_reported(clone: Path, tmp_path: Path) -> None:
    failed = run(clone, PYTHON=str(tmp_path / "python9"))
    assert failed.returncode == 1
    assert "no Python of 3.11 or newer" in failed.stderr


def loaded_from(clone: Path) -> ModuleType:
    """Return the bootstrap of `clone`, whose constants name its files."""
    spec = importlib.util.spec_from_file_location("bootstrap_of_the_clone", clone / "scripts" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_made_environment_is_left_alone_until_the_lock_file_changes(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, installs = loaded_from(clone), []
    monkeypatch.setattr(module, "check_java", lambda: None)
    monkeypatch.setattr(module, "check_disk", lambda: None)
    monkeypatch.setattr(sys, "argv", ["bootstrap.py"])

    def install() -> None:
        installs.append(1)
        module.STAMP.parent.mkdir(exist_ok=True)
        module.STAMP.write_text(module.fingerprint())

    monkeypatch.setattr(module, "install", install)
    assert [module.main(), module.main()] == [0, 0]
    assert len(installs) == 1
    (clone / "requirements.lock").write_text("another")
    assert module.main() == 0
    assert len(installs) == 2
