"""The cursor over a frame and the sink of a message, with their limits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.wire.primitives import (
    INT8,
    INT16,
    INT32,
    Cursor,
    MalformedMessageError,
    OversizedMessageError,
    Sink,
)


def content_of(sink: Sink) -> bytes:
    return b"".join(bytes(chunk) for chunk in sink.chunks)


def cursor_of(content: bytes) -> Cursor:
    return Cursor(memoryview(content))


@given(st.lists(st.integers(0, 2**35 - 1)))
def test_varints_are_read_as_they_were_written(numbers: list[int]) -> None:
    sink = Sink()
    for number in numbers:
        sink.varint(number)
    cursor = cursor_of(content_of(sink))
    assert [cursor.varint() for _ in numbers] == numbers
    assert cursor.position == sink.size == len(content_of(sink))


@pytest.mark.parametrize(("number", "content"), [(0, "00"), (127, "7f"), (128, "8001"), (2**32 - 1, "ffffffff0f")])
def test_a_varint_has_seven_bits_a_byte_and_the_lowest_first(number: int, content: str) -> None:
    sink = Sink()
    sink.varint(number)
    assert content_of(sink).hex() == content


@given(st.booleans(), st.sampled_from([INT16, INT32]), st.integers(-1, 300))
def test_a_length_is_read_as_it_was_written(compact: bool, prefix: object, length: int) -> None:
    layout = INT16 if prefix is INT16 else INT32
    sink = Sink()
    sink.length(length, compact, layout)
    sink.write(bytes(max(length, 0)))
    cursor = cursor_of(content_of(sink))
    assert cursor.length(compact, layout) == length
    assert len(cursor.take(max(length, 0))) == max(length, 0)


@pytest.mark.parametrize(
    ("content", "read", "reason"),
    [
        (b"\0\0\0", lambda cursor: cursor.number(INT32), "the frame of 3 bytes ends inside a number"),
        (b"\x80\x80", lambda cursor: cursor.varint(), "integer at byte 0 has no end"),
        (b"\xff" * 6, lambda cursor: cursor.varint(), "integer at byte 0 has no end"),
        (b"abc", lambda cursor: cursor.take(4), "4 bytes is claimed, but 3 bytes are left"),
        (b"abc", lambda cursor: cursor.take(-1), "-1 bytes is claimed"),
        (b"\0\5abcd", lambda cursor: cursor.length(False, INT16), "5 elements or bytes are claimed, but 4"),
        (b"\6abcd", lambda cursor: cursor.length(True), "5 elements or bytes are claimed, but 4"),
        (b"\1\0\3ab", lambda cursor: cursor.skip_tagged_fields(), "3 bytes is claimed, but 2"),
    ],
)
def test_a_claim_beyond_the_frame_is_refused(content: bytes, read: Callable[[Cursor], object], reason: str) -> None:
    with pytest.raises(MalformedMessageError, match=reason):
        read(cursor_of(content))


def test_elements_are_limited_over_the_whole_message() -> None:
    cursor = Cursor(memoryview(b"\2\0\0\0\0"), most_elements=5)
    assert cursor.elements(3) == range(3)
    cursor.skip_tagged_fields()  # two fields without content
    with pytest.raises(MalformedMessageError, match="a message of more than 5 elements"):
        cursor.elements(1)


def test_bytes_are_views_of_the_frame() -> None:
    frame = bytearray(b"abc")
    taken = Cursor(memoryview(frame)).take(2)
    frame[0] = ord("x")
    assert taken == b"xb"


@given(st.lists(st.sampled_from([0, 1, 8191, 8192, 10_000])))
def test_a_sink_keeps_the_order_and_copies_no_large_part(sizes: list[int]) -> None:
    sink = Sink()
    parts = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    for part in parts:
        sink.write(part)
        sink.number(INT8, 7)
    assert content_of(sink) == b"".join(part + b"\7" for part in parts)
    assert sink.size == len(content_of(sink))
    assert [chunk for chunk in sink.chunks if isinstance(chunk, bytes)] == [part for part in parts if len(part) >= 8192]


def test_a_message_may_have_its_largest_size_and_no_byte_more() -> None:
    sink = Sink(most_bytes=10_000)
    sink.write(bytes(10_000))
    sink.check_size()
    sink.numbers(INT8, [1])
    with pytest.raises(OversizedMessageError, match="a message of more than 10000 bytes"):
        sink.check_size()
