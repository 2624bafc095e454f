"""Segments as bytes: what goes in comes out, ids follow the content, sizes are bounded, and damage is distinguished
from other formats."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import IncompatibleCheckpointError, TaskCorruptedError
from penstock.state.segments import (
    SegmentHeader,
    SegmentKind,
    StoreKey,
    _decompressed,
    decode,
    encode,
    encode_snapshot,
    merge,
    segment_id,
)

STORES = (("counts", "timestamped_key_value"), ("names", "key_value"))
KEYS = st.binary(max_size=6)
CHANGES = st.dictionaries(
    st.sampled_from(["counts", "names"]), st.dictionaries(KEYS, st.none() | st.binary(max_size=9))
)
PARENTS = st.none() | st.binary(min_size=16, max_size=16)


def test_empty_bytes_are_not_a_delete() -> None:
    [segment] = encode(SegmentHeader(None, STORES), {"names": {b"a": b"", b"b": None, b"": b"x"}})
    assert decode(segment.data).changes == {"names": {b"": b"x", b"a": b"", b"b": None}}
    assert (segment.info.entries, segment.info.deletes) == (3, 1)


@given(PARENTS, CHANGES, st.lists(st.binary(max_size=20)), st.binary(max_size=30))
def test_what_is_encoded_is_decoded(
    parent: bytes | None, changes: dict[str, dict[bytes, bytes | None]], carried: list[bytes], checkpoint: bytes
) -> None:
    [encoded] = encode(SegmentHeader(parent, STORES, checkpoint), changes, carried)
    segment = decode(encoded.data, encoded.info.id)
    assert segment.changes == {store: changed for store, changed in changes.items() if changed}
    assert all(list(changed) == sorted(changed) for changed in segment.changes.values())
    assert (segment.parent, segment.stores, segment.checkpoint, segment.carried) == (
        parent,
        STORES,
        checkpoint,
        carried,
    )
    assert segment.id == segment.last == encoded.info.id == segment_id(encoded.data)
    assert encoded.info.file_bytes == len(encoded.data)


@given(PARENTS, CHANGES, PARENTS, CHANGES)
def test_the_id_is_that_of_parent_and_content(
    parent: bytes | None,
    changes: dict[str, dict[bytes, bytes | None]],
    other_parent: bytes | None,
    other: dict[str, dict[bytes, bytes | None]],
) -> None:
    [one] = encode(SegmentHeader(parent, STORES), changes)
    shuffled = {store: dict(reversed(list(changed.items()))) for store, changed in reversed(list(changes.items()))}
    assert encode(SegmentHeader(parent, STORES), shuffled) == [one]
    [two] = encode(SegmentHeader(other_parent, STORES), other)
    same = parent == other_parent and {s: c for s, c in changes.items() if c} == {s: c for s, c in other.items() if c}
    assert (one.info.id == two.info.id) == same


@given(
    st.dictionaries(st.binary(max_size=30), st.none() | st.binary(max_size=3000), max_size=40),
    st.lists(st.binary(max_size=2000), max_size=20),
)
def test_a_commit_is_cut_into_parts_of_bounded_size(changes: dict[bytes, bytes | None], carried: list[bytes]) -> None:
    limit = 20_000
    parts = encode(SegmentHeader(b"p" * 16, STORES, b"times"), {"counts": changes, "names": changes}, carried, limit)
    segments = [decode(part.data, part.info.id) for part in parts]
    assert all(len(part.data) <= limit for part in parts)
    assert [segment.parent for segment in segments] == [b"p" * 16, *(part.info.id for part in parts[:-1])]
    assert [segment.checkpoint for segment in segments] == [None] * (len(parts) - 1) + [b"times"]
    assert [part.info.final for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [record for segment in segments for record in segment.carried] == carried
    for store in ("counts", "names"):
        assert [item for s in segments for item in s.changes.get(store, {}).items()] == sorted(changes.items())


def test_only_the_stores_that_are_asked_for_are_decoded() -> None:
    changes: dict[str, dict[bytes, bytes | None]] = {
        "counts": {b"a": b"1", b"b": None},
        "names": {b"a": b"x", b"b": b"", b"c": None},
        "other": {b"d": b"2"},
    }
    (segment,) = encode(SegmentHeader(None, STORES, b"end"), changes)
    for stores in ({"names"}, {"counts", "other"}, {"absent"}, set(changes)):
        found = decode(segment.data, stores=stores)
        assert found.changes == {name: each for name, each in changes.items() if name in stores}
        assert found.checkpoint == b"end"


def test_an_entry_above_the_limit_is_in_its_own_segment() -> None:
    changes: dict[bytes, bytes | None] = {b"a": b"1", b"b": bytes(range(256)) * 200, b"c": b"3"}
    parts = encode(SegmentHeader(None, STORES), {"names": changes}, max_bytes=18_000)
    assert [list(decode(part.data).changes["names"]) for part in parts] == [[b"a"], [b"b"], [b"c"]]


@given(st.lists(CHANGES, min_size=1, max_size=6))
def test_merging_keeps_the_last_change_of_each_key(commits: list[dict[str, dict[bytes, bytes | None]]]) -> None:
    parent, segments = None, []
    expected: dict[str, dict[bytes, bytes | None]] = {}
    for changes in commits:
        [encoded] = encode(SegmentHeader(parent, STORES, b"x"), changes, [b"carried"])
        segments.append(decode(encoded.data))
        parent = encoded.info.id
        for store, changed in changes.items():
            expected.setdefault(store, {}).update(changed)
    merged = merge(segments)
    segment = decode(merged.data, merged.info.id)
    assert segment.changes == {store: changed for store, changed in expected.items() if changed}
    assert (segment.kind, segment.parent, segment.last) == (SegmentKind.MERGED, None, parent)
    assert (segment.checkpoint, segment.carried) == (None, [])


def test_only_neighbours_are_merged() -> None:
    one = decode(encode(SegmentHeader(None, STORES), {})[0].data)
    three = decode(encode(SegmentHeader(b"2" * 16, STORES), {})[0].data)
    with pytest.raises(ValueError, match="cannot be merged after"):
        merge([one, three])
    with pytest.raises(ValueError, match="Nothing to merge"):
        merge([])


@given(st.integers(1, 5000), st.integers(0, 60))
def test_snapshots_continue_where_they_ended(step: int, count: int) -> None:
    entries = [("a", b"%03d" % number, b"v" * number) for number in range(count)] + [("b", b"z", b"last")]
    seen: list[tuple[str, bytes, bytes | None]] = []
    start: StoreKey | None = None
    for _ in range(len(entries)):
        rest = [entry for entry in entries if start is None or entry[:2] >= start]
        stores = [(name, [entry[1:] for entry in own]) for name, own in groupby(rest, key=itemgetter(0))]
        written = encode_snapshot(b"p" * 16, 3, start, STORES, stores, step)
        for part in written:
            assert (part.info.start, part.info.cycle, part.info.last) == (start, 3, b"p" * 16)
            changes = decode(part.data, part.info.id).changes
            seen += [(store, key, value) for store, changed in changes.items() for key, value in changed.items()]
            start = part.info.end
        if start is None:
            break
    assert start is None
    assert seen == entries


def test_a_snapshot_of_nothing_closes_the_round() -> None:
    [written] = encode_snapshot(b"p" * 16, 1, None, STORES, [], 100)
    assert (written.info.start, written.info.end, written.info.entries) == (None, None, 0)


def test_snapshots_are_of_bounded_size() -> None:
    entries = [(bytes([number]), bytes(range(256)) * 20) for number in range(20)]
    written = encode_snapshot(b"p" * 16, 1, None, STORES, [("a", entries)], 1_000_000, max_bytes=40_000)
    assert len(written) > 1
    assert all(part.info.file_bytes <= 40_000 for part in written)


def test_damage_is_found_at_every_byte() -> None:
    [encoded] = encode(SegmentHeader(None, STORES, b"c"), {"names": {b"a": b"1"}}, [b"r"])
    data = encoded.data
    for length in range(len(data)):
        with pytest.raises(TaskCorruptedError):
            decode(data[:length])
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        with pytest.raises((TaskCorruptedError, IncompatibleCheckpointError)):
            decode(bytes(damaged), encoded.info.id)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_791, 65_792, 600_000])
def test_content_of_any_size_is_read_from_its_frame(size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    assert _decompressed(bytes(cramjam.zstd.compress(content, level=1))) == content


def test_frames_that_zstandard_wrote_are_read() -> None:
    for frame, content in (
        ("28b52ffd200109000061", b"a"),
        ("28b52ffd602c004d00001000000100272ac002", bytes(300)),
        ("28b52ffda07011010055000010000001006b1139c002", bytes(70_000)),
    ):
        assert _decompressed(bytes.fromhex(frame)) == content


@pytest.mark.parametrize("announced", [2**63, 2**40, 1])
def test_a_frame_that_announces_another_size_than_it_has_is_damaged(announced: int) -> None:
    [encoded] = encode(SegmentHeader(None, STORES, b"c"), {"names": {b"a": bytes(70_000)}})
    start = encoded.data.index(b"\x28\xb5\x2f\xfd")
    frame = bytearray(encoded.data[start:])
    frame[4:9] = bytes([0xE0]) + announced.to_bytes(8, "little")  # in 8 bytes instead of 4
    data = bytearray(encoded.data[:start] + frame)
    data[9:13] = len(frame).to_bytes(4, "little")
    with pytest.raises(TaskCorruptedError, match="is damaged"):
        decode(bytes(data), encoded.info.id)


def test_a_frame_without_its_size_is_damaged() -> None:
    with pytest.raises(ValueError, match="does not say how large"):
        _decompressed(bytes.fromhex("28b52ffd0000190000616263"))


def test_other_bytes_and_newer_formats_are_distinguished() -> None:
    with pytest.raises(TaskCorruptedError, match="is not a segment of Penstock"):
        decode(b"PAR1" + bytes(100))
    data = bytearray(encode(SegmentHeader(None, STORES), {})[0].data)
    data[4] = 9
    with pytest.raises(IncompatibleCheckpointError, match="format 9; this version of Penstock reads format 1"):
        decode(bytes(data))
    [other] = encode(SegmentHeader(None, STORES), {"names": {b"a": b"1"}})
    with pytest.raises(TaskCorruptedError, match="content of another one"):
        decode(other.data, b"x" * 16)
