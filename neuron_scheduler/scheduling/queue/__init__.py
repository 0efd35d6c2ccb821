"""Pending pods: which is tried next, and which event lets a refused pod be tried again."""
