"""The allocation of producer ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.metadata_store import MetadataStore
from penstock_broker.producer_ids import BLOCK_SIZE, ProducerIds


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    opened = MetadataStore(tmp_path / "metadata.sqlite")
    yield opened
    opened.close()


def test_ids_are_consecutive_across_the_blocks_of_a_life(store: MetadataStore) -> None:
    ids = ProducerIds(store, lambda: -1)
    drawn = [ids.draw() for _ in range(2 * BLOCK_SIZE + 1)]
    assert drawn == list(range(drawn[0], drawn[0] + len(drawn)))


def test_a_life_loses_the_rest_of_its_block_and_repeats_no_id(store: MetadataStore) -> None:
    first = ProducerIds(store, lambda: -1).draw()
    assert ProducerIds(store, lambda: -1).draw() == first + BLOCK_SIZE


def test_an_id_in_the_logs_is_not_given_again_by_an_older_database(store: MetadataStore) -> None:
    in_logs = [10_000]
    ids = ProducerIds(store, lambda: in_logs[0])
    assert ids.draw() == 10_001
    in_logs[0] = 50_000  # of a block that is open, and therefore no concern of it
    assert ids.draw() == 10_002
    assert ProducerIds(store, lambda: in_logs[0]).draw() == 50_001
