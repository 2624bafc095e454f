"""Tests of one group run in one worker: pytest-xdist takes the group from the end of a test's id."""

import pytest


@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("value", ["plain", "with [brackets] and @"])
def test_the_id_of_a_grouped_test_ends_with_its_group(request: pytest.FixtureRequest, value: str) -> None:
    grouped = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith("]@together" if grouped else "]"), value


def test_a_run_in_several_workers_begins_with_groups(request: pytest.FixtureRequest) -> None:
    found = [item.get_closest_marker("xdist_group") is not None for item in request.session.items]
    is_sorted = found == sorted(found, reverse=True)
    assert is_sorted or not request.config.getoption("loadgroup", default=False)
