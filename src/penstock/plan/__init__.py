"""The logical plan of a program and its lowering to a `Topology`; knows nothing of how tasks run."""
