"""
Why a pod waits, what would let it in, how many more fit, and what the fleet looks like: pure functions of the cluster.

Each question has one answer, a frozen value, which the commands, the process's endpoints and the page all show. It has
no number that the decision itself would not give.
"""
