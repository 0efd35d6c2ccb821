"""The scheduler with slow decisions: for a pod with the label `seconds` the event loop is blocked for that long."""

import sys
import time
from typing import Any
from unittest import mock

from neuron_scheduler.__main__ import main
from neuron_scheduler.controllers import pod_attempt
from neuron_scheduler.scheduling.cycle.schedule_pod import select_node


def _slow(cluster: Any, pod: Any, profile: Any) -> Any:
    ends = time.monotonic() + float(pod.labels.get("seconds", 0))
    while time.monotonic() < ends:
        pass  # as Python code that computes: other threads run, the event loop does not
    return select_node(cluster, pod, profile)


if __name__ == "__main__":
    with mock.patch.object(pod_attempt, "select_node", _slow):
        sys.exit(main())
