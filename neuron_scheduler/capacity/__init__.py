"""
Asks an autoscaler for whole machines, because it counts and cannot see that what is free is in pieces.

An autoscaler adds nothing for a pod that fits by count on an existing node. If no block there is free for the pod,
`planning` says how many new machines such pods need together, of which size and where. The other modules ask for them
with placeholder pods. Nothing of this is imported unless a profile has capacity requests.
"""
