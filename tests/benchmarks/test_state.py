"""The benchmark of state runs a task over epochs and restores what it kept; speed is not checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import state


def test_an_unknown_base_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert state.main(["--only", "lmdb,paper"]) == 2
    assert "not paper" in capsys.readouterr().err


@pytest.mark.parametrize("base", state.BASES)
def test_all_keys_are_kept_and_restored(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "EPOCH_RECORDS", 300)
    found = state.measure(base, 1_000, 1_000, f"file://{tmp_path}/checkpoint")
    assert found["entries_restored"] == 1_000
    assert list((tmp_path / "checkpoint" / "state").iterdir())
    row = state._table([found]).splitlines()[-1]
    assert row.startswith(f"| {base} | 1,000 | ")
