"""
Reads a cluster once, from an API server or from files, into the tables that the running process keeps.

The objects go through the process's own readers and fold, so an answer about a capture is the answer that the
process would give. What could not be read is noted.
"""
