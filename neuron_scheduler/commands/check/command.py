"""
`neuron-scheduler check`: the flags, and the way from them to a report on stdout and an exit code.

Nothing is written to the cluster. The log of the libraries stays silent: what went wrong is part of the report.
"""

import argparse
import logging
from typing import Final

import anyio

from neuron_scheduler.commands.check.reader import Reader
from neuron_scheduler.commands.check.report import EXIT_CODES, Report, TextReport, encode, report_on
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.stopping import interruptible
from neuron_scheduler.telemetry.errors import ConfigurationError, UnreachableError
from neuron_scheduler.telemetry.line_formats import leaves
from neuron_scheduler.telemetry.terminal import terminal, write_out

WITHIN: Final = 120.0
"""Seconds for all requests together; 20,000 pods take a few."""
INTERRUPTED: Final = 130  # as a shell reports it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the check."""
    parser.description = (
        "Look at a cluster, before or after the installation, and say what needs action. Nothing is changed."
    )
    parser.epilog = EXIT_CODES
    add = parser.add_argument
    add("--kubeconfig", metavar="FILE", default="", help="default: $KUBECONFIG or ~/.kube/config; in a pod its account")
    add("--master", metavar="URL", default="", help="address of the API server, in place of the kubeconfig's")
    add("--context", metavar="NAME", default="", help="the context of the kubeconfig (default: its current one)")
    add(
        "--namespace",
        "-n",
        metavar="NAME",
        default="kube-system",
        help="where the scheduler is, or will be, installed (default: kube-system)",
    )
    add(
        "--scheduler-name",
        metavar="NAME",
        action="append",
        default=[],
        help="a schedulerName that pods with Neuron should have; may be repeated (default: those of the installation's"
        " configuration, or my-scheduler)",
    )
    add(
        "--output",
        "-o",
        metavar="FORMAT",
        choices=("text", "json"),
        default="text",
        help="text, or json for scripts (default: text)",
    )


def run(arguments: argparse.Namespace) -> int:
    """
    Check a cluster, print the report, and return the exit code.

    Raises:
        ConfigurationError: there is no usable kubeconfig, no API server at that address, or it does not know us.
    """
    logging.disable(logging.CRITICAL)
    reasons: list[str] = []
    report: Report | None = None
    try:
        report = anyio.run(_until_stopped, arguments, backend="asyncio", backend_options={"use_uvloop": True})
    except* ConfigurationError as group:
        reasons = [str(error) for error in leaves(group)]
    except* UnreachableError as group:
        reasons = [f"nothing could be checked: {error}" for error in leaves(group)]
    if reasons:
        raise ConfigurationError(reasons[0])
    if report is None:
        return INTERRUPTED
    write_out(_printed(report, arguments.output))
    return report.exit_code


async def _until_stopped(arguments: argparse.Namespace) -> Report | None:
    """Return the report; None if a signal asked to stop."""
    async with interruptible():
        return await _report(arguments)
    return None


async def _report(arguments: argparse.Namespace) -> Report:
    connection = await auth.load(arguments.kubeconfig or None, arguments.master or None, context=arguments.context)
    async with Client(connection=connection) as client:
        reader = Reader(
            client=client,
            server=connection.server,
            source=connection.source,
            namespace=arguments.namespace,
            names=tuple(arguments.scheduler_name),
        )
        try:
            with anyio.fail_after(WITHIN):
                return report_on(await reader.read())
        except TimeoutError:
            raise UnreachableError(f"{connection.server} did not answer everything within {WITHIN:g} s") from None


def _printed(report: Report, form: str) -> str:
    if form == "json":
        return encode(report) + "\n"
    screen = terminal()
    return "\n".join(TextReport(screen.width, screen.colour).lines(report)) + "\n"
