"""What the process reports about itself: log lines and metrics."""
