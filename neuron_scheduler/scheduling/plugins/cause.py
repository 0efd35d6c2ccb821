"""
What a waiting pod waits for, in one word for the metrics (`neuron_scheduler_pods_waiting`).

Each plugin names the cause of its refusals; `cycle.refusals` chooses between the causes of several refusals.
"""

import enum


class Cause(enum.StrEnum):
    """What a pod waits for; the values are labels."""

    UNTRIED = "untried"
    """Its first attempt."""
    GATED = "gated"
    """Its scheduling gates."""
    GROUP = "group"
    """Members of its group that do not exist yet."""
    ERROR = "error"
    """Another attempt: the last one ended in an error, or the API server refused the Binding."""
    CAPACITY = "capacity"
    """Neuron: too little is free, or no node has that much."""
    FRAGMENTATION = "fragmentation"
    """Neuron: enough is free, but in pieces."""
    INVALID_COUNT = "invalid_count"
    """Neuron: no node serves that count."""
    UNKNOWN_HOLDER = "unknown_holder"
    """Neuron: pods whose ids are unknown may hold what the pod needs."""
    UNHEALTHY = "unhealthy"
    """Neuron: the nodes report a problem."""
    NOMINATED = "nominated"
    """Space that is kept for pods of the same or a higher priority, for which others were evicted."""
    RESOURCES = "resources"
    """Other resources: cpu, memory, number of pods, host ports."""
    TAINTS = "taints"
    """Taints, cordons, and nodes whose objects could not be read."""
    AFFINITY = "affinity"
    """Node selector and affinity, pod affinity, topology spread."""
    VOLUMES = "volumes"
    """Its claims, on volumes and on devices, and volumes."""
    POD = "pod"
    """A change of the pod itself: no node could take it."""
    OTHER = "other"
