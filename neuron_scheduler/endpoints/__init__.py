"""The process's own ports: their limits, the order in which clients are served, and requests and answers as bytes."""
