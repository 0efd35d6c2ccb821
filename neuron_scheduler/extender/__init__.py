"""
kube-scheduler's HTTP extender protocol: the default scheduler decides, with our filters, preferences and Bindings.

The verbs are answered from the same cluster in memory as the decisions of our own queue.
"""
