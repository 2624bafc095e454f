"""The logical plan of a program and its lowering to a `Topology`.

It is independent of the execution of tasks.
"""
