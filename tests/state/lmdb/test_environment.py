"""Opening of LMDB environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.lmdb import LmdbBase
from tests.support.bases import SMALL_MAP


def test_a_damaged_file_begins_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = LmdbBase(tmp_path, SMALL_MAP)
    base.apply({"s": {b"a": b"1"}}, b"one")
    base.close()
    (tmp_path / "data.mdb").write_bytes(b"no database" * 2000)
    again = LmdbBase(tmp_path, SMALL_MAP)
    assert again.stamp() is None
    assert "is damaged" in caplog.text
    again.close()
