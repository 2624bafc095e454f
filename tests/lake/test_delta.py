"""The offsets in versions of Delta: checkpoints of its log, and compaction."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.errors import StreamsError
from tests.lake.formats import DeltaFormat, rows_of
from tests.lake.test_tables import SCHEMA, SOURCE, some


def test_offsets_stay_after_a_compaction_and_a_checkpoint_of_the_log(tmp_path: Path) -> None:
    lake = DeltaFormat(tmp_path)
    table = lake.open(SCHEMA)
    for number in range(5):
        table.append(some(number), SOURCE, {0: number, 1: 2 * number})
        table.refresh()
    stored = DeltaTable(lake.table().uri)
    stored.optimize.compact()
    stored.create_checkpoint()
    stored.cleanup_metadata()
    assert len(lake.files()) == 1
    assert lake.open(SCHEMA).offsets(SOURCE) == {0: 4, 1: 8}
    assert [row[1] for row in rows_of(lake)] == [0, 1, 2, 3, 4]


def test_a_table_that_deletes_offsets_after_a_time_is_refused(tmp_path: Path) -> None:
    lake = DeltaFormat(tmp_path)
    table = lake.open(SCHEMA)
    stored = DeltaTable(lake.table().uri)
    stored.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})
    table.refresh()
    with pytest.raises(StreamsError, match="setTransactionRetentionDuration = interval 7 days, which deletes the offs"):
        table.offsets(SOURCE)
