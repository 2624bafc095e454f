"""How many cores this process may use, by itself and with the other processes of its container."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.host.supervision.cores import cores, cores_at_a_time


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", None),
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("1 100000", 1),
        (f"{100_000 * 1_000_000} 100000", None),
    ],
)
def test_a_container_may_have_fewer_cores_than_the_machine(tmp_path: Path, limit: str, expected: int | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(f"{limit}\n")
    assert cores_at_a_time(file) == (expected or cores())


def test_without_a_container_all_cores_may_be_used(tmp_path: Path) -> None:
    assert cores_at_a_time(tmp_path / "none") == cores() >= 1
