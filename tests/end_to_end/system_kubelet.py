"""
Kubelets that really run what schedules: each pod of a scheduler's Deployment in kube-system is a process of its own.

AWS's `my-scheduler` is the real kube-scheduler, with the ConfigMap that its pod mounts. AWS's extension is the model of
`tests.support.aws_extension` at the address of its Service. Our pods are `neuron-scheduler`, with their arguments. Each
has the token of its pod's ServiceAccount. A pod is ready when its process is, and a deleted pod is gone when its
process has ended. So a test can follow a page's commands, and see what a user of a cluster would see.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import attrs

from tests.control_plane.fake_kubelet import FakeKubelet, path_of, running, unless_outrun
from tests.control_plane.kube_scheduler import kube_scheduler
from tests.control_plane.rest import STRATEGIC, Object
from tests.control_plane.server import ControlPlane, free_port
from tests.end_to_end.process import SchedulerProcess, run_scheduler, until
from tests.support.aws_extension import AwsExtension, Belief, served
from tests.support.aws_release import EXTENSION_URL

CONFIGURATIONS: Final = "/api/v1/namespaces/kube-system/configmaps"


class NeverStartedError(Exception):
    """A pod was deleted before its process could start."""


@attrs.define(eq=False)
class SystemKubelet(FakeKubelet):
    """
    All kubelets in one; pods outside kube-system run without a process.

    Attributes:
        belief: of each extension that is started from now on.
        extensions: the models that run.
        service_port: where the Service `k8s-neuron-scheduler` leads, whose it may be.
    """

    plane: ControlPlane = attrs.field(kw_only=True)
    folder: Path = attrs.field(kw_only=True)
    belief: Belief = Belief.MAPS_ELSE_FREE
    extensions: list[AwsExtension] = attrs.field(factory=list)
    service_port: int = attrs.field(factory=free_port)
    _stops: dict[str, anyio.Event] = attrs.field(factory=dict, init=False)
    _addresses: set[int] = attrs.field(factory=set, init=False)

    async def _serve(self, pod: Object, ends: anyio.abc.TaskGroup) -> None:
        uid, process = pod["metadata"]["uid"], self._process_of(pod)
        if process is None:
            await super()._serve(pod, ends)
        elif "deletionTimestamp" in pod["metadata"]:
            if uid in self._stops:
                self._stops[uid].set()
            else:
                await super()._serve(pod, ends)
        elif uid not in self._stops:
            self._stops[uid] = anyio.Event()
            ends.start_soon(self._run_pod, pod, process)

    async def _run_pod(self, pod: Object, process: AbstractAsyncContextManager[None]) -> None:
        """Run a pod's process until the pod is deleted."""
        with suppress(NeverStartedError):
            async with process:
                with unless_outrun():
                    await self.api.patch(f"{path_of(pod)}/status", {"status": running(pod)}, content_type=STRATEGIC)
                await self._stops[pod["metadata"]["uid"]].wait()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        with unless_outrun():
            await self.api.delete(path_of(pod), body)

    def _process_of(self, pod: Object) -> AbstractAsyncContextManager[None] | None:
        if pod["metadata"]["namespace"] != "kube-system":
            return None
        (container,) = pod["spec"]["containers"]
        image = container["image"].partition(":")[0]
        if image.endswith("/kube-scheduler"):
            return self._kube_scheduler(pod)
        if image.endswith("aws/neuron/neuron-scheduler"):
            return self._extension(pod)
        return self._ours(pod) if image.endswith("neuron-scheduler") else None

    @asynccontextmanager
    async def _kube_scheduler(self, pod: Object) -> AsyncIterator[None]:
        """Run AWS's second kube-scheduler."""
        name = pod["metadata"]["name"]
        configuration = (await self._files(pod))["my-scheduler-config.yaml"]
        value = json.loads(configuration.replace(EXTENSION_URL, f"http://127.0.0.1:{self.service_port}"))
        value["clientConnection"] = {"kubeconfig": str(await self._kubeconfig(pod))}
        flags = ("--leader-elect=true", f"--cert-dir={self.folder / name}")
        async with kube_scheduler(value, self.folder, *flags, name=name).started():
            yield

    @asynccontextmanager
    async def _extension(self, pod: Object) -> AsyncIterator[None]:
        async with self.plane.client(await self._token(pod)) as api:
            extension = AwsExtension(api, self.belief)
            async with served(extension, self.service_port):
                self.extensions.append(extension)
                yield
                self.extensions.remove(extension)

    @asynccontextmanager
    async def _ours(self, pod: Object) -> AsyncIterator[None]:
        """Run our scheduler, or our extender; each replica has an address, the Service leads to that of the first."""
        name, (command, *flags) = pod["metadata"]["name"], pod["spec"]["containers"][0]["args"]
        path, number = self.folder / f"{name}.yaml", min({1, 2, 3, 4} - self._addresses)
        self._addresses.add(number)
        own = {"--config": str(path), "--extender-bind-address": f"127.0.0.{number}:{self.service_port}"}
        keys = [flag.partition("=")[0] for flag in flags]
        flags = [f"{key}={own[key]}" if key in own else flag for key, flag in zip(keys, flags, strict=True)]
        try:
            path.write_text((await self._files(pod))["config.yaml"])
            async with run_scheduler(await self._kubeconfig(pod), *flags, command=command) as scheduler:
                await until(partial(_ready, scheduler))
                yield
                assert await scheduler.stop() == 0
        finally:
            self._addresses.remove(number)

    async def _files(self, pod: Object) -> dict[str, str]:
        """Return the files of the ConfigMap that a pod mounts."""
        (name,) = (volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume)
        return dict((await self._needed(pod, "GET", f"{CONFIGURATIONS}/{name}"))["data"])

    async def _kubeconfig(self, pod: Object) -> Path:
        return self.plane.kubeconfig(
            self.folder / f"{pod['metadata']['name']}.kubeconfig", token=await self._token(pod)
        )

    async def _token(self, pod: Object) -> str:
        """Return a token of the pod's ServiceAccount."""
        account = f"/api/v1/namespaces/kube-system/serviceaccounts/{pod['spec']['serviceAccountName']}"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        spec = {"expirationSeconds": 86400}
        return str((await self._needed(pod, "POST", f"{account}/token", request | {"spec": spec}))["status"]["token"])

    async def _needed(self, pod: Object, method: str, path: str, body: Object | None = None) -> Object:
        """
        Wait until something exists that a pod cannot start without, as a kubelet does, and return the answer.

        A ReplicaSet that is about to be deleted may create a pod when the ConfigMap is gone.

        Raises:
            NeverStartedError: the pod is deleted.
        """
        while not self._stops[pod["metadata"]["uid"]].is_set():
            status, answer = await self.api.request(method, path, body)
            if status != HTTPStatus.NOT_FOUND:
                assert status < HTTPStatus.MULTIPLE_CHOICES, answer
                return answer
            await anyio.sleep(0.05)
        raise NeverStartedError


async def _ready(scheduler: SchedulerProcess) -> bool:
    try:
        return (await scheduler.get("/readyz"))[0] == 200
    except OSError:
        return False
