"""
What the scheduler remembers: the cluster as a small database of bitmap indexes.

Nodes are rows in numbered slots, a set of nodes is one integer, an index answers a question about all nodes at
once. Only this package and `scheduling` know slots and node sets; everywhere else a node is its name.
"""
