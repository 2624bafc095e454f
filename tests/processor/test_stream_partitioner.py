"""What partitioners of users may take, and what they are called with."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from penstock.processor.stream_partitioner import check_partitioner, with_headers
from penstock.record import Headers

HEADERS: Headers = (("name", b"n"),)


class Chooses:
    """A partitioner with state."""

    def __call__(self, topic: str, key: Any, value: Any, headers: Headers, number_of_partitions: int) -> set[int]:
        return {len(headers)}


def old(topic: str, key: Any, value: Any, number_of_partitions: int) -> set[int] | None:
    return {number_of_partitions - 1}


@pytest.mark.parametrize(
    ("partitioner", "chosen"),
    [
        (Chooses(), {1}),
        (lambda topic, key, value, headers, count: {count - len(headers)}, {7}),
        (lambda topic, key, value, headers, count, *more, option=1: {len(headers)}, {1}),
        (old, {7}),
        (lambda *arguments: {len(arguments)}, {4}),
        (lambda topic, key, value, count, option=2: {option}, {2}),
        (lambda topic, key, value, count=3, option=2: {option}, {2}),
    ],
)
def test_a_partitioner_that_requires_five_arguments_takes_the_headers(
    partitioner: Callable[..., set[int]], chosen: set[int]
) -> None:
    check_partitioner("Produced", partitioner)
    assert with_headers(partitioner)("topic", "k", "v", HEADERS, 8) == chosen


def test_a_partitioner_without_headers_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(with_headers(old)))("topic", "k", "v", HEADERS, 8) == {7}


def test_a_built_in_without_a_signature_takes_no_headers() -> None:
    check_partitioner("Produced", max)
    assert with_headers(max)("a", "b", "c", HEADERS, "d") == "d"  # type: ignore[arg-type, comparison-overlap]  # any function


@pytest.mark.parametrize(
    "partitioner",
    [lambda topic, key, value: {0}, lambda a, b, c, d, e, f: {0}, lambda a, b, c, d, *, option: {0}, 7],
)
def test_any_other_partitioner_is_refused_with_both_forms(partitioner: Any) -> None:
    with pytest.raises(TypeError, match=r"partitioner of sink K.*\(topic, key, value, headers, number_of_partitions\)"):
        check_partitioner("sink K", partitioner)


def test_no_partitioner_is_fine() -> None:
    check_partitioner("Produced", None)
