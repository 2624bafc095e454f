"""Lowering: from the plan of a user's program to a Topology of concrete processors.

Only this package refers to those processors. Each module lowers one family of nodes, and `plan` lowers all nodes in
order.
"""
