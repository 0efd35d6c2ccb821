"""What the process reports about itself: log lines and metrics. Refuses to know any other room."""
