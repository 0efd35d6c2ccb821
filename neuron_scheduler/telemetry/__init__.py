"""What the process reports about itself: log lines and metrics. Does not depend on any other room."""
