"""What a watched object changes in cluster and queue: one module per kind."""
