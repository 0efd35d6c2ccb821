"""
The decision journal: every change of the cluster in memory and every decision, in the order in which they happened.

From it each decision can be made again, with the same profile or with another. Off by default. Does not change a
decision or delay one: lines are written by a thread, and if it cannot keep up, they are dropped and counted.
"""
