"""The names of RocksDB's metrics: each becomes metrics of hosts, with a description."""

from __future__ import annotations

from penstock.metrics import rocksdb_names
from penstock.metrics.host_metrics import DESCRIPTIONS
from penstock.metrics.rocksdb_names import ROCKSDB_PROPERTIES, ROCKSDB_RATIOS

STATISTICS = [value for name, value in vars(rocksdb_names).items() if name.isupper() and isinstance(value, str)]


def test_each_name_has_a_description() -> None:
    described = {name for _, name in DESCRIPTIONS}
    assert ROCKSDB_PROPERTIES.keys() | ROCKSDB_RATIOS.keys() <= described
    assert [name for name in STATISTICS if not any(each.startswith(name) for each in described)] == []


def test_a_name_means_one_metric() -> None:
    names = [*STATISTICS, *ROCKSDB_PROPERTIES, *ROCKSDB_RATIOS]
    assert len(names) == len(set(names))
