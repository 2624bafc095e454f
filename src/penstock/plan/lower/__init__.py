"""Lowering: from the plan of a user's program to a Topology of concrete processors. The only package that names them;
each module lowers one family of nodes, `plan` all of them in order."""
