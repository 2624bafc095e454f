"""The points at which tests can kill a process: each is described, listed and in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.host import crashpoints

SOURCE = Path(crashpoints.__file__).parents[1]
IN_CODE = re.compile(r'crash_point(?:\(|, )\s*"([\w.]+)"')


def test_each_point_is_described() -> None:
    described = re.findall(r"^    (\w+\.\w+) ", crashpoints.__doc__ or "", re.MULTILINE)
    assert described == list(crashpoints.ALL_POINTS), "describe each point, in the order of the tuples"


def test_each_point_is_in_the_code_and_each_of_the_code_is_listed() -> None:
    found = {name for path in SOURCE.rglob("*.py") for name in IN_CODE.findall(path.read_text(encoding="utf-8"))}
    assert found == set(crashpoints.ALL_POINTS), "an unlisted point kills no process, and its tests would pass"


@pytest.mark.parametrize("text", ["commit.writen", "manifest.after_write:all"])
def test_an_unknown_point_is_refused_with_all_of_them(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CRASH_POINTS", text)
    crashpoints._orders.cache_clear()
    with pytest.raises(ValueError, match=rf"{text!r} is not a crash point: .*manifest.after_write.* commit.written"):
        crashpoints.crash_point("commit.written", 0)


def test_without_orders_a_point_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_CRASH_POINTS", raising=False)
    crashpoints._orders.cache_clear()
    crashpoints.crash_point("commit.written", 0)
