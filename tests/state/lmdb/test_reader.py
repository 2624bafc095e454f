"""Views of a base against a dict, with long keys."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.api import Base
from penstock.state.lmdb import LmdbBase, SharedLmdb, reader
from penstock.state.memory import MemoryBase
from tests.support.bases import SMALL_MAP

LONG = b"p" * 480


KEY = st.one_of(
    st.binary(max_size=3),
    st.sampled_from([LONG[:479], LONG, LONG + b"q"]),
    st.builds(lambda tail: LONG + tail, st.binary(max_size=2)),
    st.builds(lambda tail, size: LONG + tail * size, st.binary(min_size=1, max_size=1), st.integers(15, 40)),
    st.builds(lambda tail: LONG[:470] + tail, st.binary(max_size=20)),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(KEY, st.none() | st.binary(max_size=5), max_size=12), max_size=5),
    st.lists(st.tuples(st.none() | KEY, st.none() | KEY), max_size=5),
    st.lists(KEY, max_size=5),
    st.integers(1, 4),
)
def test_any_content_is_that_of_a_dict(
    commits: list[dict[bytes, bytes | None]],
    ranges: list[tuple[bytes | None, bytes | None]],
    absent: list[bytes],
    chunk: int,
) -> None:
    """Keys shorter, as long and longer than LMDB takes, many with the same first 480 bytes, come in the order of their
    bytes."""
    directory = tempfile.mkdtemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_CHUNK", chunk)
        shared = SharedLmdb(Path(directory) / "shared")
        bases: list[Base] = [LmdbBase(directory, SMALL_MAP), shared.base("0_0"), MemoryBase()]
        model: dict[bytes, bytes] = {}
        for number, changes in enumerate(commits):
            for key, value in changes.items():
                model.pop(key, None)
                if value is not None:
                    model[key] = value
            for base in bases:
                base.apply({"t": changes, "s": dict(sorted(changes.items()))}, b"%d" % number)
        for base in bases:
            view = base.view("s")
            keys = [*model, *absent]
            assert view.multi_get(keys) == [model.get(key) for key in keys] == [view.get(key) for key in keys]
            assert view.approximate_num_entries() == len(model)
            for low, high in [(None, None), *ranges]:
                chosen = sorted(
                    item
                    for item in model.items()
                    if (low is None or item[0] >= low) and (high is None or item[0] < high)
                )
                assert list(view.range(low, high, False)) == chosen
                assert list(view.range(low, high, True)) == chosen[::-1]
            base.close()
        shared.close()
    shutil.rmtree(directory)
