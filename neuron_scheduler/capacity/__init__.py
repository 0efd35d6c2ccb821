"""
Asks an autoscaler for whole machines, because it counts and cannot see that what is free is in pieces.

An autoscaler adds nothing for a pod that fits by count on an existing node. `planning` says how many new machines such
pods need together, of which size and where; placeholder pods ask for them.
"""
