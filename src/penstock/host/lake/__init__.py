"""Copies of topics in tables of a data lake (`KStream.to_lake`), by any host."""
