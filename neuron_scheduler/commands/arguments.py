"""
The arguments that several commands share: which cluster, which namespace, which form of output.

Their names are kubectl's, and they mean the same; a kubeconfig says what is missing here.
"""

import argparse
import os
from pathlib import Path
from typing import Any, Final

from neuron_scheduler.settings.arguments import reader
from neuron_scheduler.settings.setting import duration
from neuron_scheduler.telemetry.errors import ConfigurationError

FORMS: Final = ("text", "wide", "json", "yaml")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("which cluster (default: the kubeconfig's current context)")
    add = where.add_argument
    add(
        "--from",
        dest="files",
        metavar="FILE",
        action="append",
        default=[],
        help="read the cluster from the output of `kubectl get nodes,pods,... -A -o json` (or yaml) in place of an API"
        " server; - is standard input; may be repeated",
    )
    add(
        "--ask",
        metavar="URL",
        default="",
        help="ask the running scheduler at this address (such as http://127.0.0.1:10251 through kubectl port-forward),"
        " with your token; the answer stays within your rights",
    )
    add("--certificate-authority", metavar="FILE", default="", help="authority of the scheduler at --ask")
    add("--insecure-skip-tls-verify", action="store_true", help="with --ask: trust any server; others can then read")
    add(
        "--config",
        metavar="FILE",
        default="",
        help="the scheduler's configuration file (default: the installed one if you may read it)",
    )
    add_connection(parser)


def add_connection(parser: argparse.ArgumentParser, *servers: str) -> None:
    """Declare kubectl's flags for the connection to an API server; `servers` are more names of `--server`."""
    add = parser.add_argument_group("kubectl's own flags").add_argument
    add("--kubeconfig", metavar="FILE", default="", help="default: $KUBECONFIG or ~/.kube/config; in a pod its account")
    add("--context", metavar="NAME", default="", help="of the kubeconfig")
    add(
        "-s",
        "--server",
        *servers,
        metavar="URL",
        default="",
        help="address of the API server, in place of the kubeconfig's",
    )
    add("--token", metavar="TOKEN", default="", help="bearer token, in place of the kubeconfig's user")
    add("--as", dest="impersonate", metavar="NAME", default="", help="the user to act as")
    add("--as-group", metavar="NAME", action="append", default=[], help="a group to act as; may be repeated")
    add(
        "--request-timeout",
        metavar="DURATION",
        type=reader(_timeout),
        default=120.0,
        help="for all requests together, such as 30s; 0 for none (default: 120s)",
    )


def _timeout(text: str) -> float:
    """Return seconds; as with kubectl a number needs no unit."""
    return float(text) if text.isdecimal() else duration(text)


def add_namespace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", metavar="NAME", default="", help="default: that of the context")


def add_output(parser: argparse.ArgumentParser, *forms: str) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=forms or FORMS,
        default="text",
        help=f"{', '.join(forms or FORMS)} (default: text)",
    )


def kubeconfig_of(arguments: argparse.Namespace) -> str | None:
    """Return the kubeconfig that kubectl would use, also in a pod whose account has rights; None without one."""
    paths: str = arguments.kubeconfig
    if not paths:
        paths = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
        if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path):
            return None
    return paths


def connection_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `auth.load` for kubectl's flags."""
    if arguments.as_group and not arguments.impersonate:
        raise ConfigurationError("--as-group needs --as, the user to act as")
    return {
        "paths": kubeconfig_of(arguments),
        "master": arguments.server or None,
        "context": arguments.context,
        "token": arguments.token,
        "acting_as": {"as": arguments.impersonate, "as-groups": arguments.as_group} if arguments.impersonate else None,
    }
