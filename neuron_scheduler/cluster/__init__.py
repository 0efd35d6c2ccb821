"""
The state of the cluster: a small database with bitmap indexes.

Nodes are rows in numbered slots, a set of nodes is one integer, and an index answers a question about all nodes at
once. Outside of this room and `scheduling`, a node is its name.
"""
