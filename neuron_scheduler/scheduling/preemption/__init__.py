"""Preemption: which pods of lower priority would make room for a pod that fits nowhere."""
