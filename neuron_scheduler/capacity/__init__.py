"""
Which whole machines the autoscaler is asked for, because it counts and cannot see that what is free is in pieces.

An autoscaler adds nothing for a pod that fits by count on an existing node. If no block there is free for the pod, this
room says how many new machines such pods need together, of which size and where, and which requests are no longer
needed. Refuses I/O and clocks: others say how long a pod has waited, and ask.
"""
