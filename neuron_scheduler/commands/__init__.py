"""
What a person asks of a cluster on the command line: the arguments, where the cluster comes from, and the texts.

The answers are those of `explain`. No command writes to the cluster.
"""
