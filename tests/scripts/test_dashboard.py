"""The dashboard of families at the end of a test run."""

from __future__ import annotations

from collections import Counter

from tests.support.dashboard import table


def test_a_family_is_green_on_a_host_where_all_its_tests_passed() -> None:
    found = {
        ("joins", "spark"): Counter(passed=2),
        ("joins", "test driver"): Counter(passed=2, failed=1),
        ("windows", "test driver"): Counter(skipped=1),
    }
    header, joins, windows = table(found)
    assert header.split() == ["spark", "test", "driver"]
    assert joins.split() == ["joins", "ok", "2", "FAILED", "1", "of", "3"]
    assert windows.split() == ["windows", "-", "skipped"]
