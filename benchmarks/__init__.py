"""Benchmarks of Penstock beside other ways to the same result; see README.md."""
