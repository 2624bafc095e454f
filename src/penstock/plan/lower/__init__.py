"""Lowering: from the plan of a user's program to a Topology of concrete processors.

No other package imports those processors. Each module lowers one family of nodes, and `plan` lowers all nodes in order.
"""
