"""
A real control plane on loopback: etcd and kube-apiserver, on request kube-controller-manager and kube-scheduler.

RBAC is on, certificates are like those of EKS, ports are free ones, data is in a temporary folder, and everything ends
with the `async with`. For tests and benchmarks:

    async with run_control_plane() as plane:
        await plane.admin.get("/api/v1/nodes")
        token = await plane.token_for("kube-system", "neuron-scheduler")
        plane.kubeconfig(path, token=token)

ServiceAccount admission is off, so that pods need no service account; the identities themselves are real ones.
"""

import asyncio
import json
import secrets
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.control_plane.binaries import require
from tests.control_plane.component import Component, ComponentError
from tests.control_plane.rest import RestClient
from tests.support.certificates import Authority, trusting

CLOSED_BY_UVLOOP: Final = "unable to perform operation on <TCPTransport closed=True"
PORT_TRIES: Final = 5  # another process may take a port before we use it


@attrs.frozen
class User:
    """A user in the API server's token file."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = attrs.field(factory=secrets.token_urlsafe, repr=False)


ADMIN: Final = User("admin", ("system:masters",))
CONTROLLER_MANAGER: Final = User("system:kube-controller-manager")
SCHEDULER: Final = User("system:kube-scheduler")


@attrs.define(eq=False)
class ControlPlane:
    """
    A running control plane.

    Attributes:
        folder: temporary; holds certificates, data and each component's log, `<name>.log`.
        port: of kube-apiserver, on 127.0.0.1.
        etcd_port: of etcd, on 127.0.0.1.
        admin: a client in the group system:masters.
        components: the running programs by name: to stop, kill and start again.
    """

    folder: Path
    port: int = attrs.field(init=False)
    etcd_port: int = attrs.field(init=False)
    admin: RestClient = attrs.field(init=False)
    components: dict[str, Component] = attrs.field(factory=dict, init=False)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> Path:
        """The certificate authority that signed the API server's certificate."""
        return self.folder / "ca.crt"

    @property
    def trust(self) -> ssl.SSLContext:
        """A client's context that trusts that authority."""
        return trusting(self.ca_file)

    def client(self, token: str) -> RestClient:
        """Return a client with another identity, to be opened with `async with`."""
        return RestClient(self.server, token, self.trust)

    async def token_for(self, namespace: str, service_account: str) -> str:
        """Return a ServiceAccount's token, valid for a day; create the account and its namespace if missing."""
        await self.admin.apply(_named("Namespace", namespace))
        await self.admin.apply(_named("ServiceAccount", service_account), namespace=namespace)
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = await self.admin.post(path, request | {"spec": {"expirationSeconds": 86400}})
        return str(answer["status"]["token"])

    def kubeconfig(
        self, path: Path, *, token: str = ADMIN.token, token_file: Path | None = None, server: str = ""
    ) -> Path:
        """
        Write a kubeconfig for the holder of a token, by default the administrator; return its path.

        The token may be in a file instead, and the API server may be reached under another URL than its own.
        """
        user = {"token": token} if token_file is None else {"tokenFile": str(token_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": "default"}}],
            "clusters": [
                {
                    "name": "tests",
                    "cluster": {"server": server or self.server, "certificate-authority": str(self.ca_file)},
                }
            ],
            "users": [{"name": "tests", "user": user}],
        }
        path.write_text(json.dumps(config, indent=2))  # JSON is YAML
        path.chmod(0o600)
        return path


@asynccontextmanager
async def run_control_plane(
    *,
    api_server_flags: Sequence[str] = (),
    users: Sequence[User] = (),
    with_controller_manager: bool = False,
    with_scheduler: Mapping[str, Any] | None = None,
) -> AsyncIterator[ControlPlane]:
    """
    Run a control plane until the block is left.

    Args:
        api_server_flags: added to those below, or overriding them; like `--feature-gates=...`.
        users: in the token file beside administrator, controller manager and scheduler.
        with_controller_manager: for Deployments, garbage collection, volumes; nodes never become unhealthy.
        with_scheduler: fields of a KubeSchedulerConfiguration (`{}` for the defaults) to run kube-scheduler with.

    Raises:
        MissingBinaryError: a program is neither installed nor built.
        ComponentError: a program does not run; the text has its last lines.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(_closed_connections_stay_closed())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="control-plane-")))
        plane = ControlPlane(folder)
        _write_certificates(folder)
        _write_tokens(folder, users)
        plane.etcd_port = await _start(stack, plane, "etcd", _etcd_flags(folder))
        flags = [*_api_server_flags(folder, plane.etcd_port), *api_server_flags]
        plane.port = await _start(stack, plane, "kube-apiserver", flags)
        plane.admin = await stack.enter_async_context(plane.client(ADMIN.token))
        await plane.admin.wait_until(
            "/api/v1/namespaces", lambda namespaces: {"default", "kube-system"} <= namespaces.keys()
        )
        if with_controller_manager:
            await stack.enter_async_context(running_controllers(plane))
        if with_scheduler is not None:
            kubeconfig = plane.kubeconfig(folder / "scheduler.kubeconfig", token=SCHEDULER.token)
            await _start(stack, plane, "kube-scheduler", _scheduler_flags(folder, kubeconfig, with_scheduler))
        yield plane


@asynccontextmanager
async def running_controllers(plane: ControlPlane) -> AsyncIterator[None]:
    """Run kube-controller-manager beside a control plane until the block is left."""
    async with AsyncExitStack() as stack:
        kubeconfig = plane.kubeconfig(plane.folder / "kcm.kubeconfig", token=CONTROLLER_MANAGER.token)
        await _start(stack, plane, "kube-controller-manager", _controller_manager_flags(plane.folder, kubeconfig))
        yield
    del plane.components["kube-controller-manager"]


@asynccontextmanager
async def another_api_server(plane: ControlPlane, etcd_port: int) -> AsyncIterator[tuple[int, Component]]:
    """Run a second kube-apiserver that reaches the same etcd through some port of 127.0.0.1; yield its port, and it."""
    async with AsyncExitStack() as stack:
        called = "another-kube-apiserver"
        port = await _start(stack, plane, "kube-apiserver", _api_server_flags(plane.folder, etcd_port), called)
        yield port, plane.components.pop(called)


@contextmanager
def _closed_connections_stay_closed() -> Iterator[None]:
    """
    Ignore uvloop's error for a write to a connection that was just closed: it would fail an unrelated test.

    Bytes that arrive on such a TLS connection raise in a callback (MagicStack/uvloop#506), which nothing awaits any
    more. All other errors in callbacks are handled as before.
    """
    loop = asyncio.get_running_loop()
    reported = loop.get_exception_handler()

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if str(context.get("exception", "")).startswith(CLOSED_BY_UVLOOP):
            return
        (reported or asyncio.AbstractEventLoop.default_exception_handler)(loop, context)

    loop.set_exception_handler(report)
    try:
        yield
    finally:
        loop.set_exception_handler(reported)


async def _start(stack: AsyncExitStack, plane: ControlPlane, name: str, flags: Sequence[str], called: str = "") -> int:
    """Start a component and return its port; `PORT` in its flags is replaced by a free port."""
    called = called or name
    program, scheme = require(name), "http" if name == "etcd" else "https"
    path = "readyz" if name == "kube-apiserver" else "health" if name == "etcd" else "healthz"
    for tries in range(1, PORT_TRIES + 1):
        port = free_port()
        argv = [str(program), *(flag.replace("PORT", str(port)) for flag in flags)]
        component = Component(called, argv, f"{scheme}://127.0.0.1:{port}/{path}", plane.folder / f"{called}.log")
        stack.push_async_callback(component.stop)
        plane.components[called] = component
        try:
            await component.start()
        except ComponentError as error:
            if "address already in use" not in str(error) or tries == PORT_TRIES:
                raise
        else:
            break
    return port


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago, and that no connection takes by itself."""
    while True:
        port = 16_384 + secrets.randbelow(16_384)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _write_certificates(folder: Path) -> None:
    """Write the authority, one serving certificate for all, and the key that signs ServiceAccount tokens."""
    authority = Authority()
    (folder / "ca.crt").write_bytes(authority.pem)
    authority.issue("127.0.0.1", "::1", "localhost").write(folder / "serving.crt", folder / "serving.key")
    signing = ec.generate_private_key(ec.SECP256R1())
    (folder / "sa.key").write_bytes(
        signing.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    )


def _write_tokens(folder: Path, users: Sequence[User]) -> None:
    """Write the API server's token file."""
    lines = [
        f'{user.token},{user.name},{user.name}-uid,"{",".join(user.groups)}"'
        for user in (ADMIN, CONTROLLER_MANAGER, SCHEDULER, *users)
    ]
    (folder / "tokens.csv").write_text("\n".join(lines) + "\n")


def _serving_flags(folder: Path) -> list[str]:
    return [
        "--bind-address=127.0.0.1",
        "--secure-port=PORT",
        f"--tls-cert-file={folder / 'serving.crt'}",
        f"--tls-private-key-file={folder / 'serving.key'}",
    ]


def _etcd_flags(folder: Path) -> list[str]:
    return [
        f"--data-dir={folder / 'etcd'}",
        "--listen-client-urls=http://127.0.0.1:PORT",
        "--advertise-client-urls=http://127.0.0.1:PORT",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--unsafe-no-fsync",  # this data need not survive a power cut
        "--watch-progress-notify-interval=5s",
        "--log-level=warn",
    ]


def _api_server_flags(folder: Path, etcd_port: int) -> list[str]:
    return [
        *_serving_flags(folder),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={folder / 'sa.key'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged=true",
        f"--cert-dir={folder}",
    ]


def _controller_manager_flags(folder: Path, kubeconfig: Path) -> list[str]:
    return [
        *_serving_flags(folder),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",  # without it RBAC refuses most controllers
        f"--service-account-private-key-file={folder / 'sa.key'}",
        f"--root-ca-file={folder / 'ca.crt'}",
        # Nothing renews the leases of simulated nodes.
        "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller",
    ]


def _scheduler_flags(folder: Path, kubeconfig: Path, fields: Mapping[str, Any]) -> list[str]:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
    }
    path = folder / "scheduler.yaml"
    path.write_text(json.dumps(configuration | dict(fields)))
    return [*_serving_flags(folder), f"--config={path}"]


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
