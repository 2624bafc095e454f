"""The pages of what is there of Kafka's API are what the script writes, and the script finds what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import coverage


def test_the_pages_are_up_to_date() -> None:
    assert coverage.PAGE.read_text() == coverage.page(), "run python scripts/coverage.py"
    assert coverage.JAVA_PAGE.read_text() == coverage.java_page(), "run python scripts/coverage.py"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("kstream.KStream: filter teleport", "not offered: kstream.KStream.teleport"),
        ("kstream.Telescope: look", "not offered: kstream.Telescope"),
        ("kstream.KStream: filter", "no such name: "),  # decisions about names that Kafka does not have
    ],
)
def test_a_name_without_a_decision_is_reported(
    names: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "names.txt"
    listed.write_text(f"# comment\n{names}\n")
    monkeypatch.setattr(coverage, "NAMES", listed)
    with pytest.raises(coverage.CoverageError, match=said):
        coverage.page()


@pytest.mark.parametrize(
    ("java", "python"),
    [
        ("groupByKey", "group_by_key"),
        ("as", "as_"),
        ("with", "with_"),
        ("currentStreamTimeMs", "current_stream_time_ms"),
        ("EARLIEST", "EARLIEST"),
    ],
)
def test_names_of_java_become_names_of_python(java: str, python: str) -> None:
    assert coverage.snake(java) == python
