"""The interpreter of conformance cases: turns a case of `FORMAT.md` into a topology, drives it, and compares results.

`operations` and the tables that it names say what is built; everything else follows from them.
"""
