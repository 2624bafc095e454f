"""The figures of a soak: what counts as growth."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.soak.figures import MIB, figures_of, growth

FLAT = {"processes": 5.0, "descriptors": 100.0, "memory": 200.0 * MIB, "disk": 40.0 * MIB}


@pytest.mark.parametrize(("name", "by"), [("processes", 0.1), ("descriptors", 1), ("memory", MIB), ("disk", MIB)])
def test_what_grows_all_the_time_is_found(name: str, by: float) -> None:
    samples = [{**FLAT, name: FLAT[name] + by * second} for second in range(120)]
    assert list(growth(samples)) == [name]


def test_a_warm_up_and_waves_are_no_growth() -> None:
    samples = [{each: FLAT[each] * (min(1, second / 25) + second % 10 / 100) for each in FLAT} for second in range(120)]
    assert growth(samples) == {}


def test_figures_are_those_of_a_process_and_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "file"
    file.parent.mkdir()
    file.write_bytes(os.urandom(MIB))
    with file.open("rb") as opened:
        process = subprocess.Popen(["sleep", "600"], stdin=opened, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        before = figures_of(process.pid, [tmp_path])
        assert (before["processes"], before["descriptors"]) == (1, 3)
        assert before["memory"] > 0
        assert before["disk"] >= MIB
        file.unlink()
        assert figures_of(process.pid, [tmp_path])["disk"] == before["disk"], "the file still takes its room"
    finally:
        process.kill()
        process.wait()
