"""The scheduler whose view counts as stale after half a minute without lists and watches, not after two."""

import sys
from unittest import mock

from neuron_scheduler.__main__ import main
from neuron_scheduler.kube.watch import informer

if __name__ == "__main__":
    with mock.patch.object(informer, "STALE", 30.0):  # a watch in which nothing happens ends after 20 s
        sys.exit(main())
