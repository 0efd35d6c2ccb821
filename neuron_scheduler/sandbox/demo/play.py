"""
`neuron-scheduler demo`: the real scheduler process at work on a simulated fleet, with a picture.

Runs the embedded API server, the scheduler in a pod of its Deployment, which is a process here, and the stage. Needs no
cluster, and ends by itself without `--serve`.
"""

import argparse
import errno
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.interruption import interruptible
from neuron_scheduler.sandbox.demo import installation, page_port, scheduler_pods
from neuron_scheduler.sandbox.demo.workload import DemoError
from neuron_scheduler.sandbox.server import ApiServer
from neuron_scheduler.telemetry.line_formats import leaves

_INTERRUPTED, _READER_GONE = 130, 141  # as a shell reports SIGINT and SIGPIPE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the demo."""
    parser.description = "Watch the scheduler place pods on a simulated fleet. Needs no cluster."
    parser.add_argument("--serve", action="store_true", help="keep running afterwards, for your own kubectl")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port of the API server; 0: a free one")
    parser.add_argument("--export", default="", metavar="FILE.svg", help="write the last screen as SVG")


def run(arguments: argparse.Namespace, *, program: scheduler_pods.Program = scheduler_pods.scheduler) -> int:
    """
    Play the demo: 0 if all checks passed, 1 if not, 130 if it was interrupted before its end, 141 if its reader went.

    `program` makes the command line of the scheduler from the arguments of its container.

    Raises:
        ConfigurationError: rich is not installed, the port cannot be used, or the folder to export to is not there.
    """
    try:
        from neuron_scheduler.sandbox.demo.picture import ReaderGoneError  # fails before anything is started
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "the demo draws with rich, which is not installed: run `make demo`, or pip install rich"
        ) from error
    if arguments.export and not Path(arguments.export).absolute().parent.is_dir():
        raise ConfigurationError(f"--export {arguments.export}: there is no such folder")
    code = 0
    try:
        code = anyio.run(_play, arguments, program, backend_options={"use_uvloop": True})
    except* ReaderGoneError:
        code = _READER_GONE
    except* DemoError as group:
        code = 1
        for reason in leaves(group):
            print(f"neuron-scheduler demo: {reason}", file=sys.stderr)  # noqa: T201 - for a person
    return code


async def _play(arguments: argparse.Namespace, program: scheduler_pods.Program) -> int:
    tokens = {installation.TOKEN: "you"}
    server = ApiServer(port=arguments.port, termination_limit=0.0, controllers=True, kube_scheduler=True, tokens=tokens)
    server.runtime = pods = scheduler_pods.SchedulerPods(server, program, page=arguments.serve)
    try:
        async with server.serving():
            code = await _on_stage(server, pods, arguments)
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        raise ConfigurationError(f"--port {arguments.port}: {error.strerror}; choose another") from error
    if pods.bad_ends:
        raise DemoError("; ".join(pods.bad_ends))
    return code


async def _on_stage(server: ApiServer, pods: scheduler_pods.SchedulerPods, arguments: argparse.Namespace) -> int:
    from neuron_scheduler.sandbox.demo.stage import Stage

    stage = Stage(server)
    for installed in (installation.account(), installation.deployment(), installation.device_plugin()):
        server.create(installed)
    async with interruptible():
        await stage.play()
        if arguments.export:
            stage.export(arguments.export)
        if arguments.serve:
            pods.restarts = True
            with TemporaryDirectory(prefix="neuron-scheduler-demo-") as folder:
                kubeconfig = Path(folder) / "kubeconfig"
                kubeconfig.write_text(installation.kubeconfig(server.url))
                await _until_available(server)
                async with page_port.leading_to(pods.port) as port:
                    await stage.serve(kubeconfig, f"http://127.0.0.1:{port}/page")
    return 0 if stage.finished else _INTERRUPTED


async def _until_available(server: ApiServer) -> None:
    """Wait until the Deployment says so, which is a moment after its pod is ready."""
    while not (installation.deployed(server.store).get("status") or {}).get("availableReplicas"):
        await server.store.changed("deployments")
