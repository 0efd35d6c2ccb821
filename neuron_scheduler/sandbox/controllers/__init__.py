"""
Stand-ins for controllers of kube-controller-manager and for kube-scheduler, each after its upstream namesake.

Deployments, ReplicaSets, DaemonSets, Jobs and garbage collection; pods of the default scheduler get a node. Not here:
StatefulSets, CronJobs, autoscalers, disruption budgets, node lifecycle.
"""
