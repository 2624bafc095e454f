"""Requests and their results."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config.isolation_level import IsolationLevel
from penstock.errors import StreamsError
from penstock.state.query.position import Position, PositionBound
from penstock.state.query.queries import KeyQuery
from penstock.state.query.request import (
    NOT_PRESENT,
    OF_GLOBAL_STORE,
    FailureReason,
    QueryResult,
    StateQueryRequest,
    StateQueryResult,
)

AT_5, AT_7 = Position.from_map({"t": {0: 5}}), Position.from_map({"t": {0: 3, 1: 7}})
FAILED = QueryResult.for_failure(FailureReason.STORE_EXCEPTION, "broken")


def test_a_result_is_an_answer_or_a_failure() -> None:
    assert (QueryResult.for_result(None).is_success(), QueryResult.for_result(None).is_failure()) == (True, False)
    assert QueryResult.for_result(5).result == 5
    for failed in (FAILED, NOT_PRESENT, OF_GLOBAL_STORE):
        assert (failed.is_success(), failed.is_failure()) == (False, True)
    with pytest.raises(ValueError, match="Failure is STORE_EXCEPTION: broken"):
        _ = FAILED.result


def test_failures_name_the_query_and_the_bound() -> None:
    unknown = QueryResult.for_unknown_query_type(KeyQuery("k"), object())
    assert unknown.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    assert (
        "This store (object) doesn't know how to execute the given query (KeyQuery(key='k'" in unknown.failure_message
    )
    waiting = QueryResult.not_up_to_bound(AT_5, PositionBound.at(AT_7), 3)
    assert waiting.failure_reason is FailureReason.NOT_UP_TO_BOUND
    assert f"store partition 3, the current position {AT_5} is not yet up to the bound" in waiting.failure_message


def test_a_copy_of_a_result_adds_position_and_execution_info() -> None:
    result = QueryResult.for_result(5).with_position(AT_5).add_execution_info("one").add_execution_info("two")
    assert (result.result, result.position, result.execution_info) == (5, AT_5, ("one", "two"))
    assert QueryResult.for_result(5).execution_info == ()


@pytest.mark.parametrize(
    ("results", "value"),
    [({}, None), ({0: 5}, 5), ({0: None, 1: 0}, 0), ({0: None}, None), ({0: FAILED, 1: 5}, 5)],
)
def test_the_only_result_is_the_one_answer_that_is_not_none(results: dict[int, Any], value: Any) -> None:
    answers = {
        number: each if isinstance(each, QueryResult) else QueryResult.for_result(each)
        for number, each in results.items()
    }
    found = StateQueryResult(answers).only_partition_result
    assert (found and found.result) == value


@pytest.mark.parametrize("others", [{}, {0: QueryResult.for_result(None)}])
def test_a_failed_partition_is_not_an_absent_key(others: dict[int, QueryResult]) -> None:
    failed = StateQueryResult({3: QueryResult.not_up_to_bound(AT_5, PositionBound.at(AT_7), 3), **others})
    with pytest.raises(
        StreamsError, match=r"Partition 3 has no result: NOT_UP_TO_BOUND: .* is not yet up to the bound"
    ):
        _ = failed.only_partition_result


def test_several_answers_are_not_one() -> None:
    several = StateQueryResult({0: QueryResult.for_result(1), 1: QueryResult.for_result(2)})
    with pytest.raises(ValueError, match="did not return exactly one partition result"):
        _ = several.only_partition_result


def test_the_position_of_a_result_is_that_of_all_partitions() -> None:
    answers = {0: QueryResult.for_result(1).with_position(AT_5), 1: FAILED.with_position(AT_7)}
    assert StateQueryResult(answers).position == Position.from_map({"t": {0: 5, 1: 7}})
    assert StateQueryResult(answers, OF_GLOBAL_STORE.with_position(AT_7)).position == AT_7
    assert StateQueryResult().position.is_empty()


def test_a_request_is_for_all_partitions_without_a_bound_by_default() -> None:
    request = StateQueryRequest.in_store("s").with_query(KeyQuery("k"))
    assert (request.is_all_partitions(), request.position_bound.is_unbounded()) == (True, True)
    assert (request.active_required, request.execution_info_enabled) == (False, False)
    narrow = request.with_partitions([1, 1]).with_position_bound(PositionBound.at(AT_5)).require_active()
    assert narrow == StateQueryRequest("s", KeyQuery("k"), frozenset([1]), PositionBound(AT_5), True, False)
    assert narrow.enable_execution_info().execution_info_enabled
    assert narrow.with_all_partitions().is_all_partitions()
    assert not request.with_partitions([]).is_all_partitions()


def test_a_request_has_the_default_level_unless_it_names_one() -> None:
    request = StateQueryRequest.in_store("s").with_query(KeyQuery("k"))
    assert request.isolation_level is None
    committed = request.with_isolation_level(IsolationLevel.READ_COMMITTED).with_partitions([1]).require_active()
    assert committed.isolation_level is IsolationLevel.READ_COMMITTED
    assert request.isolation_level is None
    wrong: Any = "READ_COMMITTED"
    with pytest.raises(TypeError, match="Expected an IsolationLevel, got 'READ_COMMITTED'"):
        request.with_isolation_level(wrong)


@pytest.mark.parametrize("level", ["READ_UNCOMMITTED", "READ_COMMITTED", True])
def test_a_request_is_made_with_an_isolation_level_only(level: Any) -> None:
    with pytest.raises(TypeError, match=r"Expected an IsolationLevel.*IsolationLevel.READ_COMMITTED"):
        StateQueryRequest("s", KeyQuery("k"), isolation_level=level)
