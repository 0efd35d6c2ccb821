"""
The cluster around the scheduler: API servers on one store, nodes with their kubelets, and the users.

    scenario -> store -> API servers (`api_server_process`), kubelets (`containers`); deeds -> registry -> store

Users and machines write to the store directly: what they do does not depend on the faults that meet the scheduler.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from datetime import UTC, datetime
from random import Random
from typing import Final

import attrs

from neuron_scheduler.settings.config import Config
from sandbox import fleet
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import CLAIM_TEMPLATES, DEVICE_CLASSES, NODES, PRIORITY_CLASSES
from sandbox.apiserver.status import StatusError
from sandbox.apiserver.store import Change as Commit, Store
from sandbox.controllers.loop import Controllers
from sandbox.kubelet import Kubelet
from tests.simulation.api_server_process import AUTHOR, PORT, ApiServerProcess
from tests.simulation.claim_controller import ClaimController
from tests.simulation.claim_deeds import TEMPLATES
from tests.simulation.clock import CLOCK, START
from tests.simulation.containers import Containers, PodGarbage
from tests.simulation.history import History
from tests.simulation.network import Network
from tests.simulation.oracles.change import Change
from tests.simulation.pod_plans import PRIORITIES
from tests.simulation.scenario import Deed, FaultWindows, Scenario
from tests.simulation.tokens import KUBECONFIG, Tokens
from tests.support.device_objects import neuron_class, template

BALANCED: Final = ("10.0.0.10", PORT)
"""The address of all API servers together; each connection goes to one of them."""


def now() -> datetime:
    """Return the right time, whatever the clocks of the replicas say."""
    return datetime.fromtimestamp(START + CLOCK.now, UTC)


@attrs.define(eq=False)
class World:
    """
    One cluster.

    Attributes:
        servers: by name.
        tokens: of the scheduler's account.
        listeners: called with each committed change, in the step that commits it.
    """

    scenario: Scenario
    network: Network
    windows: FaultWindows
    history: History
    store: Store = attrs.field(factory=Store)
    registry: Registry = attrs.field(init=False)
    servers: dict[str, ApiServerProcess] = attrs.field(factory=dict, init=False)
    tokens: Tokens = attrs.field(factory=Tokens, init=False)
    listeners: list[Callable[[Change], None]] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.registry = Registry(self.store, now)
        self.store.listeners.append(self._committed)
        for name, value in PRIORITIES.items():
            self.registry.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})
        for name, instance_type in self.scenario.nodes:
            self.registry.create(NODES, "", fleet.node(name, instance_type))
        if self.scenario.claims:
            self.registry.create(DEVICE_CLASSES, "", neuron_class())
            for name, spec in TEMPLATES.items():
                self.registry.create(CLAIM_TEMPLATES, "default", template(name, spec))
        for number in range(1, self.scenario.api_servers + 1):
            name = f"api-{number}"
            self.servers[name] = ApiServerProcess(
                name=name,
                address=f"10.0.0.{number}",
                registry=self.registry,
                tokens=self.tokens,
                windows=self.windows,
                history=self.history,
                fenced=self.scenario.fenced,
                page_size=self.scenario.page_size,
                quiet_at=self.scenario.quiet_at,
                dice=Random(f"{self.scenario.seed}/{name}"),
            )
        addresses = tuple((server.address, PORT) for server in self.servers.values())
        self.network.balanced[BALANCED] = addresses

    @property
    def config(self) -> Config:
        """The settings of all replicas."""
        duration, deadline, period = self.scenario.lease
        return Config(
            kubeconfig=KUBECONFIG,
            leader_elect_lease_duration=duration,
            leader_elect_renew_deadline=deadline,
            leader_elect_retry_period=period,
            bind_concurrency=self.scenario.bind_concurrency,
            turn_after=self.scenario.turn_after,
            claims=self.scenario.claims,
            port=0,
            secure_port=0,
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run the servers and the nodes; nothing ends them."""
        loop = asyncio.get_running_loop()
        for server in self.servers.values():
            server.start()
        containers = Containers(self.registry, self.windows, Random(f"{self.scenario.seed}/containers"))
        runs = [Kubelet(self.registry, 0.0, containers).run, PodGarbage(self.registry, self.history).run]
        if self.scenario.claims:
            runs.append(ClaimController(self.registry, Random(f"{self.scenario.seed}/claim controller")).run)
        if self.scenario.controllers:
            runs.append(Controllers(self.registry).run)
        tasks = [loop.create_task(run(), context=Context()) for run in runs]
        yield
        assert not any(task.done() for task in tasks)

    def do(self, deed: Deed) -> None:
        """Let somebody do something; what the API server refuses is not done."""
        self.history.line("deed", str(deed))
        try:
            deed.done_in(self)
        except StatusError as error:
            self.history.line("deed", f"refused: {error.code} {error.message}")

    def _committed(self, _table: str, change: Commit) -> None:
        committed = Change(
            at=CLOCK.now,
            version=change.version,
            type=change.type,
            object=change.object,
            previous=change.previous,
            author=AUTHOR.get(),
        )
        self.history.committed(committed)
        for listener in self.listeners:
            listener(committed)
