"""`python -m neuron_scheduler` is `neuron-scheduler`."""

import sys

from neuron_scheduler.cli import main

sys.exit(main())
