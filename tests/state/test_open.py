"""Bases on disk are opened by their kind."""

from __future__ import annotations

import sys
from pathlib import Path

import lmdb
import pytest

from penstock.errors import ConfigError
from penstock.state.lmdb import FIRST_MAP_BYTES, LmdbBase
from penstock.state.open import LMDB, ROCKSDB, check_installed, open_base
from penstock.state.rocksdb import RocksDBBase
from tests.support.stores import CONFIG


@pytest.mark.parametrize(("kind", "type_"), [(LMDB, LmdbBase), (ROCKSDB, RocksDBBase)])
def test_a_base_is_of_its_kind(tmp_path: Path, kind: str, type_: type) -> None:
    base = open_base(kind, tmp_path / "base", CONFIG)
    assert type(base) is type_
    base.close()


@pytest.mark.parametrize(("content", "size"), [(0, FIRST_MAP_BYTES), (FIRST_MAP_BYTES, 4 * FIRST_MAP_BYTES)])
def test_a_map_has_space_for_the_expected_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: int, size: int
) -> None:
    sizes: list[int] = []
    original = lmdb.open

    def opened(path: str, map_size: int, **options: object) -> lmdb.Environment:
        sizes.append(map_size)
        return original(path, map_size=map_size, **options)  # type: ignore[arg-type]  # the options of the base

    monkeypatch.setattr(lmdb, "open", opened)
    open_base(LMDB, tmp_path / "base", CONFIG, content).close()
    assert sizes == [size]


def test_a_missing_package_is_named_before_a_base_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.state.rocksdb")
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    check_installed(LMDB)
    with pytest.raises(ConfigError, match=r"penstock.state.base=rocksdb needs .*rocksdb"):
        check_installed(ROCKSDB)
