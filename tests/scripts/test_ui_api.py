"""The reference of the JSON is what the code has."""

from __future__ import annotations

from scripts import ui_api


def test_the_reference_of_the_json_is_up_to_date() -> None:
    assert ui_api.PAGE.read_text(encoding="utf-8") == ui_api.page(), "run python scripts/ui_api.py"
