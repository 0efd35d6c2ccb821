"""
The commands `run` and `extender`: from the settings to the end of the process, as an exit code.

How the process ends is a line of the log, and what cannot work is one sentence on stderr.
"""

import argparse
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import attrs

from neuron_scheduler.settings.arguments import add_settings, settings_from
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ConfigurationError, LeaseLostError, StalledError
from neuron_scheduler.telemetry.line_formats import sentence

CLEAN, FAILED = 0, 1
EPILOG: Final = (
    "Exit codes: 0: asked to stop; 1: lost the Lease, was the leader and did not schedule, or crashed;"
    " 2: the configuration cannot work."
)

log = logs.logger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    config = settings_from(arguments)
    logs.configure(verbosity=config.v, logging_format=config.logging_format)
    gc.disable()  # imports leave little garbage, and collecting it takes a sixth of their time
    from neuron_scheduler import app  # not needed for --help; the import takes 0.5 s

    gc.freeze()
    gc.enable()

    with log_end() as end:
        anyio.run(app.run, config, backend="asyncio", backend_options={"use_uvloop": True})
    return end.code


@attrs.define(eq=False)
class ExitCode:
    """The exit code of a scheduler that has ended."""

    code: int = FAILED


@contextmanager
def log_end() -> Iterator[ExitCode]:
    """
    Log how the scheduler that runs inside the block ends, and set its exit code after the block.

    ConfigurationError: it cannot run with this configuration; the message is one line.
    """
    end = ExitCode()
    refusal = ""
    try:
        yield end
    except* ConfigurationError as group:
        refusal = sentence(group)
    except* LeaseLostError as group:
        log.error("Leaderelection lost", exc=group)
    except* StalledError as group:
        log.error("The scheduler does not schedule; exiting", exc=group)
    except* Exception as group:  # noqa: BLE001 - the process ends here, with a log line
        log.fatal("The scheduler ended unexpectedly", exc=group)
    else:
        end.code = CLEAN
        log.info("Requested to terminate, exiting")
    if refusal:
        raise ConfigurationError(refusal)
