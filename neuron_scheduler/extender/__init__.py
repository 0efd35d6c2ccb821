"""
kube-scheduler's HTTP extender protocol: the default scheduler decides, with our filters, preferences and Bindings.
"""
