"""Opening of LMDB environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import pytest

from penstock.state.lmdb import LmdbBase
from penstock.state.lmdb.environment import DATA_FILE, MOST_DOUBLINGS, growing, opened_or_empty
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


@pytest.mark.parametrize("failures", [0, 1, MOST_DOUBLINGS, MOST_DOUBLINGS + 1])
def test_an_action_is_run_again_while_the_map_grows(failures: int) -> None:
    left, adapted = [lmdb.MapResizedError()] * failures, []

    def action() -> str:
        if left:
            raise left.pop()
        return "done"

    if failures > MOST_DOUBLINGS:
        with pytest.raises(lmdb.MapResizedError):
            growing(action, lambda: adapted.append(1))
    else:
        assert growing(action, lambda: adapted.append(1)) == "done"
    assert len(adapted) == min(failures, MOST_DOUBLINGS)


def test_only_the_errors_of_damage_replace_a_file(tmp_path: Path) -> None:
    file = tmp_path / DATA_FILE
    for error, is_replaced in ((lmdb.DiskError(), False), (lmdb.InvalidError(), True)):
        file.write_text("content")
        errors: list[lmdb.Error] = [error]
        opened: Any = object()

        def open_environment(errors: list[lmdb.Error] = errors, opened: Any = opened) -> Any:
            if errors:
                raise errors.pop()
            return opened

        if is_replaced:
            assert opened_or_empty(tmp_path, open_environment) is opened
        else:
            with pytest.raises(lmdb.DiskError):
                opened_or_empty(tmp_path, open_environment)
        assert file.exists() != is_replaced
