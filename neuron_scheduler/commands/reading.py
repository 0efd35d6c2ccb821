"""
From the arguments to a cluster that can be asked: the profiles, and a capture from files or from the API server.

Garbage collection is off while one question is answered, and Ctrl-C ends it at once. An error is one sentence.
"""

import argparse
import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import attrs

from neuron_scheduler.capture.collection import Capture
from neuron_scheduler.commands.arguments import connection_arguments
from neuron_scheduler.explain.answers import Explanation, Fit, Fleet, Waiting
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.settings.arguments import settings_of_file
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profiles import profiles_of
from neuron_scheduler.telemetry.errors import ConfigurationError, NeuronSchedulerError, UnreachableError
from neuron_scheduler.telemetry.line_formats import leaves

A_co = TypeVar("A_co", bound=Explanation | Waiting | Fit | Fleet, covariant=True)
T = TypeVar("T")
DEFAULT_NAMESPACE: Final = "default"


@attrs.frozen(eq=False, kw_only=True)
class Reading:
    """
    What a question is asked of.

    Attributes:
        capture: the cluster.
        namespace: the one that the arguments, the context or the account name.
        profiles: of the scheduler, by scheduler name.
        leaderless: that no replica leads; empty if one does, or if that is not known.
    """

    capture: Capture
    namespace: str
    profiles: dict[str, Profile]
    leaderless: str = ""

    def profile_for(self, pod: Pod) -> Profile:
        """Return the profile by which a pod is explained; one of another scheduler as if it were ours."""
        return self.profiles.get(pod.scheduler_name) or next(iter(self.profiles.values()))


@attrs.frozen
class Answered(Generic[A_co]):
    """
    An answer.

    Attributes:
        namespace: that of the arguments, the context or the account.
        now: what it is true of, in seconds since the epoch.
    """

    answer: A_co
    namespace: str
    now: float


def compute(arguments: argparse.Namespace, answer_of: Callable[[Reading], A_co]) -> Answered[A_co]:
    """Return the answer for the cluster that the arguments name, with the notes on what could not be read."""
    reading = read(arguments)
    answer = answer_of(reading)
    answer = attrs.evolve(answer, notes=(*answer.notes, *reading.capture.notes))
    return Answered(answer, reading.namespace, reading.capture.taken)


@contextmanager
def one_question() -> Iterator[None]:
    """
    Answer one question inside the block: no log lines, no garbage collection, and Ctrl-C ends the process.

    An unexpected error becomes a ConfigurationError of one sentence.
    """
    logging.disable(logging.CRITICAL)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    gc.disable()
    try:
        yield
    except NeuronSchedulerError:
        raise
    except Exception as error:
        first = next(leaves(error))
        raise ConfigurationError(
            f"a mistake in this program ({_place(first)}): {type(first).__name__}: {first}"
        ) from error
    finally:
        gc.enable()
        for number, handler in before.items():
            signal.signal(number, handler)
        logging.disable(logging.NOTSET)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def read(arguments: argparse.Namespace) -> Reading:
    if arguments.files:
        from neuron_scheduler.capture.files import from_files

        profiles = _profiles(_config(arguments))
        capture = from_files(arguments.files, profiles=tuple(profiles.values()))
        return Reading(capture=capture, namespace=arguments.namespace or DEFAULT_NAMESPACE, profiles=profiles)
    return run_async(_read, arguments)


async def _read(arguments: argparse.Namespace) -> Reading:
    """Read the cluster, with the profiles of `--config`, or of the installed configuration if it may be read."""
    from neuron_scheduler.capture import live
    from neuron_scheduler.commands.installed import read_installed
    from neuron_scheduler.kube.http import auth
    from neuron_scheduler.kube.http.client import Client

    if arguments.certificate_authority or arguments.insecure_skip_tls_verify:
        raise ConfigurationError(
            "--certificate-authority and --insecure-skip-tls-verify are for --ask; a kubeconfig says whom to trust"
        )
    given = _config(arguments)
    connection = await auth.load(**connection_arguments(arguments))
    namespace = arguments.namespace or connection.namespace or DEFAULT_NAMESPACE

    async def read() -> Reading:
        installed = await read_installed(client)
        profiles = (not arguments.config and installed.profiles) or _profiles(given)
        claims = given.claims if arguments.config else installed.claims
        capture = await live.read(client, profiles=tuple(profiles.values()), claims=claims)
        return Reading(capture=capture, namespace=namespace, profiles=profiles, leaderless=installed.leaderless)

    async with Client(connection=connection) as client:
        return await in_time(arguments, connection.server, read)


async def in_time(arguments: argparse.Namespace, server: str, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of the work, which may take as long as `--request-timeout` says."""
    import anyio

    seconds = arguments.request_timeout or None
    try:
        with anyio.fail_after(seconds):
            return await work()
    except TimeoutError:
        raise UnreachableError(f"{server} did not answer everything within {seconds:g} s") from None


def run_async(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    import anyio

    try:
        return anyio.run(function, *arguments, backend="asyncio", backend_options={"use_uvloop": True})
    except* NeuronSchedulerError as group:
        first = next(leaves(group))
    raise first  # not inside, where it would become a group again


def _config(arguments: argparse.Namespace) -> Config:
    return settings_of_file(arguments.config) if arguments.config else Config()


def _profiles(config: Config) -> dict[str, Profile]:
    """Return its profiles; the default one if it has no queue."""
    return profiles_of(config) or profiles_of(Config())
