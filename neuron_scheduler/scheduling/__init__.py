"""What decides: plugins as questions to the cluster's indexes, the decision, and the queue of those who wait."""
