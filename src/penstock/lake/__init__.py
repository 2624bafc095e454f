"""Tables of a data lake, for `KStream.to_lake`: the formats of Apache Iceberg and Delta Lake."""

from penstock.lake.tables import Delta, Iceberg

__all__ = ["Delta", "Iceberg"]
