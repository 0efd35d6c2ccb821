"""`neuron-scheduler check`: the flags, and the way from them to a report on stdout and an exit code."""

import argparse

from neuron_scheduler.commands.arguments import add_connection, add_output, connection_arguments
from neuron_scheduler.commands.check.reader import SnapshotReader
from neuron_scheduler.commands.check.report import EXIT_CODES, Report, TextReport, content, report_on
from neuron_scheduler.commands.output import document
from neuron_scheduler.commands.reading import in_time, one_question, run_async
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.telemetry.errors import ConfigurationError, UnreachableError
from neuron_scheduler.telemetry.terminal import terminal, write_out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Say what needs action in a cluster, before or after the installation. Changes nothing."
    parser.epilog = EXIT_CODES
    add = parser.add_argument
    add("--namespace", "-n", metavar="NAME", help="has no effect: all namespaces are checked")  # a habit of kubectl
    add(
        "--scheduler-name",
        metavar="NAME",
        action="append",
        default=[],
        help="a schedulerName for pods with Neuron; may be repeated (default: those of the installation's"
        " configuration, or my-scheduler)",
    )
    add_output(parser, "text", "json")
    add_connection(parser, "--master")


def run(arguments: argparse.Namespace) -> int:
    with one_question():
        try:
            report = run_async(_report, arguments)
        except UnreachableError as error:
            raise ConfigurationError(f"nothing could be checked: {error}") from error
        in_json, lines = arguments.output == "json", TextReport(terminal()).lines(report)
        write_out(document(content(report), "json") if in_json else "".join(f"{line}\n" for line in lines))
    return report.exit_code


async def _report(arguments: argparse.Namespace) -> Report:
    connection = await auth.load(**connection_arguments(arguments))
    async with Client(connection=connection) as client:
        reader = SnapshotReader(client=client, names=tuple(arguments.scheduler_name))
        return report_on(await in_time(arguments, connection.server, reader.read))
