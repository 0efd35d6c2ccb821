"""Sets of nodes as integers, and the indexes that answer one question about all nodes at once."""
