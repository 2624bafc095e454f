"""Options for closing: a time, whether the group is left, and defaults for both."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.application.close_options import DEFAULT_CLOSE_TIMEOUT_MS, CloseOptions
from penstock.host.group_membership_operation import GroupMembershipOperation

DEFAULT, LEAVE, REMAIN = GroupMembershipOperation


def test_options_are_the_same_in_any_order() -> None:
    built = CloseOptions.timeout(7).with_group_membership_operation(REMAIN)
    assert built == CloseOptions.group_membership_operation(REMAIN).with_timeout(7) == CloseOptions(7, REMAIN)
    assert built.with_group_membership_operation(LEAVE) == CloseOptions(7, LEAVE)


def test_without_options_the_host_decides_and_the_time_is_a_minute() -> None:
    assert CloseOptions() == CloseOptions(None, None) == CloseOptions.timeout(7).with_timeout(None)
    assert CloseOptions.group_membership_operation(DEFAULT) == CloseOptions()
    assert DEFAULT_CLOSE_TIMEOUT_MS == 60_000


@pytest.mark.parametrize("duration", [1_500, timedelta(seconds=1.5)])
def test_a_time_is_milliseconds_or_a_timedelta(duration: int | timedelta) -> None:
    assert CloseOptions.timeout(duration).timeout_ms == CloseOptions().with_timeout(duration).timeout_ms == 1_500


def test_another_time_is_refused() -> None:
    wrong: int = "soon"  # type: ignore[assignment]  # the mistake that is tested
    with pytest.raises((TypeError, ValueError), match="time-out"):
        CloseOptions.timeout(wrong)
