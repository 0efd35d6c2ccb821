"""
The arguments that several commands share: which cluster, which namespace, which form of output.

Their names are kubectl's, and they mean the same; a flag of kubectl that is missing here has no meaning for a program
that only reads. Does not connect: that is for `reading`.
"""

import argparse
import os
from pathlib import Path
from typing import Final

from neuron_scheduler.kube.http.overrides import Overrides
from neuron_scheduler.settings.arguments import reader
from neuron_scheduler.settings.setting import duration

FORMS: Final = ("text", "wide", "json", "yaml")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Declare where the cluster is read: files, the running scheduler, or the API server with kubectl's flags."""
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
        " with your token; it answers within your rights, which need not cover the whole cluster",
    )
    add("--config", metavar="FILE", default="", help="the scheduler's configuration file (default: its defaults)")
    _add_connection(parser.add_argument_group("kubectl's own flags"))


def _add_connection(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--kubeconfig", metavar="FILE", default="", help="default: $KUBECONFIG or ~/.kube/config; in a pod its account")
    add("--context", metavar="NAME", default="", help="of the kubeconfig")
    add("--cluster", metavar="NAME", default="", help="of the kubeconfig")
    add("--user", metavar="NAME", default="", help="of the kubeconfig")
    add("-s", "--server", metavar="URL", default="", help="address of the API server")
    add("--token", metavar="TOKEN", default="", help="bearer token for the API server")
    add("--as", dest="impersonate", metavar="NAME", default="", help="the user to act as")
    add("--as-group", metavar="NAME", action="append", default=[], help="a group to act as; may be repeated")
    add("--as-uid", metavar="UID", default="", help="the uid to act as")
    add("--as-user-extra", metavar="KEY=VALUE", action="append", default=[], help="an attribute of that user; likewise")
    add("--proxy-url", metavar="URL", default="", help="proxy to the API server")
    add("--certificate-authority", metavar="FILE", default="", help="whom to trust as the API server")
    add("--client-certificate", metavar="FILE", default="", help="certificate of the user")
    add("--client-key", metavar="FILE", default="", help="key of that certificate")
    add("--tls-server-name", metavar="NAME", default="", help="the name in the API server's certificate")
    add("--insecure-skip-tls-verify", action="store_true", help="trust any server; others can then read the answers")
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
    """Declare the namespace."""
    parser.add_argument("-n", "--namespace", metavar="NAME", default="", help="default: that of the context")


def add_output(parser: argparse.ArgumentParser, *forms: str) -> None:
    """Declare the form of the output."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=forms or FORMS,
        default="text",
        help=f"{', '.join(forms or FORMS)} (default: text)",
    )


def kubeconfig_of(arguments: argparse.Namespace) -> str | None:
    """
    Return the kubeconfig that kubectl would use; None if there is none.

    Unlike the scheduler, kubectl uses a kubeconfig even in a pod whose account has rights of its own.
    """
    paths: str = arguments.kubeconfig
    if not paths:
        paths = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
        if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path):
            return None
    return paths


def overrides_of(arguments: argparse.Namespace) -> Overrides:
    """Return what kubectl's flags change of the kubeconfig."""
    return Overrides(
        context=arguments.context,
        cluster=arguments.cluster,
        user=arguments.user,
        server=arguments.server,
        token=arguments.token,
        tls_server_name=arguments.tls_server_name,
        certificate_authority=arguments.certificate_authority,
        insecure_skip_tls_verify=arguments.insecure_skip_tls_verify,
        client_certificate=arguments.client_certificate,
        client_key=arguments.client_key,
        impersonate=arguments.impersonate,
        impersonate_uid=arguments.as_uid,
        impersonate_groups=tuple(arguments.as_group),
        impersonate_extra=tuple(arguments.as_user_extra),
        proxy_url=arguments.proxy_url,
    )
