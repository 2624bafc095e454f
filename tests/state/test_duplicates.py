"""The entries that a join looked at last, against the store that they come from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.duplicates import Entry, RecentDuplicates

KEYS = st.sampled_from([b"a", b"b", b"c"])
TIMES = st.integers(0, 50)
STEPS = st.lists(
    st.tuples(st.just("put"), KEYS, TIMES, TIMES) | st.tuples(st.just("fetch"), KEYS, TIMES, TIMES), max_size=200
)


@given(STEPS, st.integers(1, 20), st.integers(0, 60))
def test_what_is_found_is_what_the_store_has_and_has_not_expired(
    steps: list[tuple[str, bytes, int, int]], max_entries: int, retention: int
) -> None:
    stored: dict[bytes, list[Entry]] = {}
    recent = RecentDuplicates(max_entries)
    clock = 0
    for number, (kind, key, one, other) in enumerate(steps):
        if kind == "put":
            clock = max(clock, one)
            entry = (one, number, b"")
            stored.setdefault(key, []).append(entry)
            recent.add(key, entry, clock - retention)
        else:
            low = max(min(one, other), clock - retention)
            high = max(one, other)
            expected = [entry for entry in sorted(stored.get(key, [])) if low <= entry[0] <= high]
            assert recent.between(key, low, high, lambda key: sorted(stored.get(key, []))) == expected


def test_a_full_memory_forgets_all_and_reads_again() -> None:
    loads: list[bytes] = []

    def load(key: bytes) -> list[Entry]:
        loads.append(key)
        return [(0, number, b"") for number in range(4)]

    recent = RecentDuplicates(max_entries=10)
    for key in (b"a", b"a", b"b", b"c", b"a"):
        assert len(recent.between(key, 0, 0, load)) == 4
    assert loads == [b"a", b"b", b"c", b"a"]


def test_writes_to_one_key_do_not_go_beyond_the_bound() -> None:
    stored: list[Entry] = []
    loads: list[bytes] = []

    def load(key: bytes) -> list[Entry]:
        loads.append(key)
        return list(stored)

    recent = RecentDuplicates(max_entries=10)
    assert recent.between(b"a", 0, 0, load) == []
    for number in range(25):
        stored.append((0, number, b""))
        recent.add(b"a", stored[-1], oldest=0)
    assert len(recent.between(b"a", 0, 0, load)) == 25  # more than may be held: read from the store each time
    assert len(recent.between(b"a", 0, 0, load)) == 25
    assert loads == [b"a", b"a", b"a"]
