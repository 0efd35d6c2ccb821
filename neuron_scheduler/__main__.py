"""`python -m neuron_scheduler` is `neuron-scheduler`: handles signals, and runs the command line."""

import sys

from neuron_scheduler.stopping import REQUESTS


def main() -> int:
    """Run the command line with signals handled from before its imports until the interpreter has ended."""
    REQUESTS.install()
    try:
        from neuron_scheduler import cli

        return cli.main()
    finally:
        REQUESTS.ignore()


if __name__ == "__main__":
    sys.exit(main())
