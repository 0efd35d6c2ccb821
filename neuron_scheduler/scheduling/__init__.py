"""What decides: plugins as questions to the cluster's indexes, the decision, the queue, and preemption."""
