"""
Stand-ins for controllers of kube-controller-manager, each as far as the demo and tests need it.

Deployments with their ReplicaSets, Jobs and garbage collection. All other kinds that make pods are only kept.
"""
