"""`python -m neuron_scheduler` is `neuron-scheduler`: handles signals, and runs the command line."""

import os
import sys
from typing import Final

from neuron_scheduler.stopping import REQUESTS

_STANDARD_STREAMS: Final = (0, 1, 2)


def main(program: str = "neuron-scheduler") -> int:
    _open_standard_streams()
    REQUESTS.install()
    try:
        from neuron_scheduler import cli

        return cli.main(program=program)
    finally:
        REQUESTS.ignore()


def kubectl() -> int:
    return main("kubectl neuron")


def _open_standard_streams() -> None:
    """Open the null device for each closed standard stream: libuv aborts if a socket gets its number."""
    for number in _STANDARD_STREAMS:
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(_STANDARD_STREAMS[-1], "w", closefd=False)  # noqa: SIM115 - for as long as the process lives


if __name__ == "__main__":
    sys.exit(main())
