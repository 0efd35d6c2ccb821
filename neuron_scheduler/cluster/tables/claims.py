"""
What drivers publish, and which claims have it; a pod's claims become its request here.

    slices, taint rules  -->  the devices of each node (`Node.published`)
    allocated claims     -->  what is held there, whoever has it
    a pod's references   -->  `resolve`: a request (`NeuronRequest.wanted`), a gate, a refusal, or devices it has

Of a pool only the highest generation counts, and an incomplete one gives nothing. Claims count by their allocation and
never by their reservations: the controller also reserves for pods that were bound by hand. Upstream:
`plugins/dynamicresources`, `resourceslice/tracker` in k8s.io/dynamic-resource-allocation.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

import attrs

from neuron_scheduler.model.devices import (
    NEURON_DRIVER,
    NO_CLASS,
    ClaimReference,
    ClaimWrite,
    Device,
    DeviceClass,
    DeviceKey,
    DeviceObject,
    DeviceRequest,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
    WantedDevices,
)
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import BOTH_ROADS, Node
from neuron_scheduler.model.pod import CLAIM_GATE, Pod
from neuron_scheduler.model.pod_group import GroupKey
from neuron_scheduler.model.resources import NEURON_CLAIMS, NEURON_NAMES
from neuron_scheduler.model.selectors import Taint
from neuron_scheduler.neuron.claims.cel import compile_selector
from neuron_scheduler.neuron.claims.choice import bits_of
from neuron_scheduler.neuron.claims.published import NO_POOL, WHOLE, DeviceSet, device_set

MOST_CONSTRAINTS: Final = 8
"""Of one pod."""
MOST_REQUESTS: Final = 32
MOST_SELECTING: Final = 1_000
"""Characters of the selectors of a pod's claims: each is evaluated for each device of each kind of node."""

AT_ONCE: Final = 16
"""Pods that are resolved in a step."""

_PLACE: Final = attrgetter("driver", "pool", "name", "source")

_Pool = tuple[str, str]
"""Driver and name."""


@attrs.frozen
class ClaimEffects:
    """What a change concerns: nodes by name whose devices, or whose holders, are others now; and pods by uid."""

    published: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    pods: tuple[str, ...] = ()


@attrs.define(eq=False)
class Claims:
    """
    All objects of Dynamic Resource Allocation, and the pods that refer to claims.

    Attributes:
        claims: by key.
        pods: those that refer to claims, by uid, as they were read.
        users: the uids of the pods that refer to a claim, by its key.
        waiting: why a pod is gated, by its uid.
        unresolved: the uids of pods whose claims mean something else now; a tenant may have any number of them.
    """

    claims: dict[str, ResourceClaim] = attrs.field(factory=dict)
    pods: dict[str, Pod] = attrs.field(factory=dict)
    users: dict[str, dict[str, None]] = attrs.field(factory=dict)
    waiting: dict[str, str] = attrs.field(factory=dict)
    unresolved: dict[str, None] = attrs.field(factory=dict)
    _classes: dict[str, DeviceClass] = attrs.field(factory=dict)
    _rules: dict[str, DeviceTaintRule] = attrs.field(factory=dict)
    _slices: dict[str, ResourceSlice] = attrs.field(factory=dict)
    _pools: dict[_Pool, dict[str, ResourceSlice]] = attrs.field(factory=dict)
    _pools_on: dict[str, Counter[_Pool]] = attrs.field(factory=dict)
    _allocated_in: dict[_Pool, dict[str, ResourceClaim]] = attrs.field(factory=dict)
    _allocated_at: dict[str, int] = attrs.field(factory=dict)
    _members: Counter[tuple[str, GroupKey]] = attrs.field(factory=Counter)  # how many pods of a group use a claim
    _decided: dict[str, Pod] = attrs.field(factory=dict)
    _writing: dict[str, str] = attrs.field(factory=dict)
    _largest: int = 0  # the most Neuron devices that a node has had

    def put(self, new: DeviceObject) -> ClaimEffects:
        match new:
            case ResourceSlice():
                before = self._take_out_slice(new.name)
                self._slices[new.name] = new
                self._pools.setdefault((new.driver, new.pool), {})[new.name] = new
                self._pools_on.setdefault(new.node_name, Counter())[new.driver, new.pool] += 1
                return ClaimEffects(published=frozenset({*before, *self._nodes_of_pool((new.driver, new.pool))}))
            case DeviceClass():
                self._classes[new.name] = new
                return ClaimEffects(pods=self._pending_pods())
            case DeviceTaintRule():
                rules, self._rules[new.name] = (self._rules.get(new.name, new), new), new
                return ClaimEffects(published=frozenset(node for rule in rules for node in self._nodes_under(rule)))
            case ResourceClaim():
                return self._put_claim(new)

    def remove(self, old: DeviceObject) -> ClaimEffects:
        match old:
            case ResourceSlice():
                return ClaimEffects(published=frozenset(self._take_out_slice(old.name)))
            case DeviceClass():
                self._classes.pop(old.name, None)
                return ClaimEffects(pods=self._pending_pods())
            case DeviceTaintRule():
                return ClaimEffects(published=frozenset(self._nodes_under(self._rules.pop(old.name, old))))
            case ResourceClaim():
                held = self._put_claim(attrs.evolve(old, allocation=None)).held
                del self.claims[old.key]
                self._writing.pop(old.key, None)
                return ClaimEffects(held=held, pods=tuple(self.users.get(old.key, ())))

    def _take_out_slice(self, name: str) -> Iterable[str]:
        """Take a slice out, and return the nodes of its pool: the others of its slices may count, or not, for that."""
        old = self._slices.pop(name, None)
        if old is None:
            return ()
        pool = old.driver, old.pool
        nodes = self._nodes_of_pool(pool)
        del self._pools[pool][name]
        if not self._pools[pool]:
            del self._pools[pool]
        self._pools_on[old.node_name] -= Counter((pool,))
        if not self._pools_on[old.node_name]:
            del self._pools_on[old.node_name]
        return nodes

    def _nodes_under(self, rule: DeviceTaintRule) -> Iterator[str]:
        for driver, name in self._pools:
            if rule.driver in (None, driver) and rule.pool in (None, name):
                yield from self._nodes_of_pool((driver, name))

    def _nodes_of_pool(self, pool: _Pool) -> set[str]:
        return {each.node_name for each in self._pools.get(pool, {}).values()}

    def _put_claim(self, new: ResourceClaim) -> ClaimEffects:
        old = self.claims.get(new.key)
        held = {*self._nodes_of(old), *self._nodes_of(new)}
        for pool in self._pools_of(old):
            del self._allocated_in[pool][new.key]
            if not self._allocated_in[pool]:
                del self._allocated_in[pool]
        for pool in self._pools_of(new):
            self._allocated_in.setdefault(pool, {})[new.key] = new
        if new.allocation is None:
            self._allocated_at.pop(new.key, None)
        elif old is None or (old.uid, old.allocation) != (new.uid, new.allocation):
            self._allocated_at[new.key] = int(new.resource_version or 0)
        self.claims[new.key] = new
        if old is not None:
            same = attrs.evolve(new, resource_version=old.resource_version, reserved_for=old.reserved_for)
            if same == old:
                return ClaimEffects()  # one user more, or a label
        return ClaimEffects(held=frozenset(held), pods=tuple(self.users.get(new.key, ())))

    def _pools_of(self, claim: ResourceClaim | None) -> Iterable[_Pool]:
        devices = () if claim is None or claim.allocation is None else claim.allocation.devices
        return dict.fromkeys((device.driver, device.pool) for device in devices)

    def _nodes_of(self, claim: ResourceClaim | None) -> Iterable[str]:
        for pool in self._pools_of(claim):
            yield from self._nodes_of_pool(pool)

    def _pending_pods(self) -> tuple[str, ...]:
        return tuple(uid for uid, pod in self.pods.items() if not pod.node_name)

    # What a node has.

    def with_published(self, node: Node) -> Node:
        """Return a node with what is published for it, and how many Neuron devices that are."""
        amounts = {name: amount for name, amount in node.allocatable.items() if name != NEURON_CLAIMS}
        published = self._device_set_of(node)
        fault = "" if node.neuron_fault == BOTH_ROADS else node.neuron_fault
        if published is not None and any(map(amounts.get, NEURON_NAMES)):
            fault = fault or (BOTH_ROADS if published.has_neuron else "")
            published = None  # devices of other drivers are not given beside counts
        if published is None:
            return attrs.evolve(node, published=None, allocatable=amounts, neuron_fault=fault)
        if published.has_neuron:
            amounts[NEURON_CLAIMS] = published.shape.devices
        return attrs.evolve(node, published=published, allocatable=amounts, neuron_fault=fault)

    def _device_set_of(self, node: Node) -> DeviceSet | None:
        found = list[Device]()
        for pool in self._pools_on.get(node.name, ()):
            newest = max(each.generation for each in self._pools[pool].values())
            slices = [each for each in self._pools[pool].values() if each.generation == newest]
            names = Counter(device.name for each in slices for device in each.devices)
            is_complete = len(slices) == slices[0].slice_count and len(names) == names.total()
            alias = "" if pool[1] == node.name else pool[1]
            for each in slices if all(each.node_name == node.name for each in slices) else ():
                for device in each.devices:
                    unserved = ("" if is_complete else NO_POOL) or each.unserved or device.unserved
                    taints = (*device.taints, *self._taints_of(pool, device.name))
                    is_same = (unserved, taints, alias) == (device.unserved, device.taints, "")
                    found.append(
                        device if is_same else attrs.evolve(device, unserved=unserved, taints=taints, pool=alias)
                    )
        found.sort(key=_PLACE)  # whatever came first
        return device_set(tuple(found), node.instance_type) if found else None

    def _taints_of(self, pool: _Pool, device: str) -> Iterable[Taint]:
        for rule in self._rules.values():
            is_meant = (rule.driver in (None, pool[0]), rule.pool in (None, pool[1]), rule.device in (None, device))
            if all(is_meant) and not rule.unserved:
                yield from rule.taints

    def note_size(self, node: Node) -> tuple[str, ...]:
        """Return the pods that may ask for all devices of a node, if no node has had as many Neuron devices."""
        before, self._largest = self._largest, max(self._largest, node.allocatable.get(NEURON_CLAIMS, 0))
        return self._pending_pods() if before < self._largest else ()

    def held_on(self, node_name: str) -> Iterator[tuple[DeviceKey, ...]]:
        """Yield the devices of each claim that has some of a node's."""
        pools = self._pools_on.get(node_name, ())
        for claim in {key: claim for pool in pools for key, claim in self._allocated_in.get(pool, {}).items()}.values():
            if claim.allocation is not None:
                yield claim.allocation.devices

    def rival_of(self, key: str, node: Node | None = None) -> str | None:
        """
        Return the key of a claim that holds something of what a claim holds, and got it before or has a pod on a node.

        A claim whose own pod has a node has no rival. By the node it is known which devices are parts of another one.
        """
        claim = self.claims.get(key)
        if claim is None or claim.allocation is None or self._is_in_use(key):
            return None
        mine, since = {*self._held_by(claim, node)}, self._allocated_at[key]
        for pool in self._pools_of(claim):
            for other, rival in self._allocated_in.get(pool, {}).items():
                is_first = self._allocated_at[other] < since or self._is_in_use(other)
                if other != key and is_first and not mine.isdisjoint(self._held_by(rival, node)):
                    return other
        return None

    def _held_by(self, claim: ResourceClaim, node: Node | None) -> Iterator[DeviceKey | int]:
        """Yield the devices that a claim has, and the bits of a node that are held with them."""
        devices = () if claim.allocation is None else claim.allocation.devices
        yield from devices
        if node is not None and node.published is not None:
            yield from bits_of(node.published.bits_of(devices, node.name))

    def _is_in_use(self, key: str) -> bool:
        return any(self.pods[uid].node_name for uid in self.users.get(key, ()))

    # What a pod asks for.

    def put_pod(self, raw: Pod) -> Pod:
        """Take in a pod that refers to claims, as it was read, and return what it asks for."""
        self._take_out_pod(raw.uid)
        self.pods[raw.uid] = raw
        for key in _keys_of(raw):
            self.users.setdefault(key, {})[raw.uid] = None
            if raw.group is not None:
                self._members[key, raw.group.key] += 1
        if raw.node_name:
            self._decided.pop(raw.uid, None)
        return self.resolve(raw)

    def remove_pod(self, uid: str) -> None:
        self._take_out_pod(uid)
        self._decided.pop(uid, None)

    def _take_out_pod(self, uid: str) -> None:
        raw = self.pods.pop(uid, None)
        for key in () if raw is None else _keys_of(raw):
            del self.users[key][uid]
            if not self.users[key]:
                del self.users[key]
            if raw is not None and raw.group is not None:
                self._members[key, raw.group.key] -= 1
                if not self._members[key, raw.group.key]:
                    del self._members[key, raw.group.key]
        self.waiting.pop(uid, None)

    def take_unresolved(self, uids: Iterable[str]) -> list[Pod]:
        """Return a few pods to resolve, the first of these before the oldest that are left; the others are left."""
        left = iter(uids)
        first = [*islice(left, AT_ONCE)]
        for uid in left:
            self.unresolved.setdefault(uid, None)
        taken = dict.fromkeys((*first, *islice(self.unresolved, AT_ONCE - len(first))))
        for uid in taken:
            self.unresolved.pop(uid, None)
        return [self.pods[uid] for uid in taken if uid in self.pods]

    def decide(self, pod: Pod, keys: Collection[str]) -> list[str]:
        """Note that a pod keeps what was decided, and that claims are being written for it; return as `keep`."""
        self._decided[pod.uid] = pod
        return self.keep(keys, pod.uid)

    def end_writing(self, uid: str) -> list[str]:
        """Note that a pod's claims are written, or that nobody goes on; return as `keep`."""
        users = self.release([key for key, by in self._writing.items() if by == uid])
        return [user for user in users if user != uid]

    def keep(self, keys: Collection[str], uid: str = "") -> list[str]:
        """Note that claims are one pod's only, or no pod's, until they are released; return who may want them."""
        self._writing.update(dict.fromkeys(keys, uid))
        return [user for key in keys for user in self.users.get(key, ()) if user != uid]

    def release(self, keys: Collection[str]) -> list[str]:
        """Note that claims are any pod's again; return as `keep`."""
        for key in keys:
            self._writing.pop(key, None)
        return [user for key in keys for user in self.users.get(key, ())]

    def withdraw(self, uid: str) -> None:
        """Note that a pod is not being bound any more."""
        self._decided.pop(uid, None)

    def resolve(self, raw: Pod) -> Pod:
        """Return a pod with what its claims mean to a scheduler."""
        decided = self._decided.get(raw.uid)
        if decided is not None:
            kept = {name: getattr(decided, name) for name in ("neuron", "constraints", "open_claims", "devices")}
            return attrs.evolve(raw, **kept)
        (claims, problem), constraints = self._claims_of(raw), attrs.evolve(raw.constraints, resource_claims=())
        devices = tuple(device for each in claims if each.allocation for device in each.allocation.devices)
        if raw.node_name:
            return attrs.evolve(raw, devices=devices)
        if problem:
            self.waiting[raw.uid], gates = problem, (*raw.gates, CLAIM_GATE)
            return attrs.evolve(raw, gates=gates, refusal=problem, constraints=constraints, group=None)
        self.waiting.pop(raw.uid, None)
        on = tuple(each.allocation.on for each in claims if each.allocation and each.allocation.on is not None)
        constraints = attrs.evolve(constraints, claimed_on=on)
        open_claims = [each for each in claims if each.allocation is None]
        wanted = raw.refusal or self._refusal(raw, claims) or self._wanted_of(open_claims)
        if isinstance(wanted, str):
            return attrs.evolve(raw, refusal=wanted, devices=devices, constraints=constraints)
        neuron, uids = self._request(wanted) if open_claims else None, tuple(each.uid for each in open_claims)
        return attrs.evolve(raw, neuron=neuron, open_claims=uids, devices=devices, constraints=constraints)

    def _claims_of(self, raw: Pod) -> tuple[list[ResourceClaim], str]:
        """Return a pod's claims, and why it has to wait for one; empty if it has not."""
        found, problem = dict[str, ResourceClaim](), ""
        for reference in raw.claims:
            if reference.claim_name is not None:
                claim = self.claims.get(f"{raw.namespace}/{reference.claim_name}") if reference.claim_name else None
                problem = problem or self._problem(raw, reference, claim)
                if claim is not None:
                    found[claim.key] = claim
        return [*found.values()], problem

    def _problem(self, raw: Pod, reference: ClaimReference, claim: ResourceClaim | None) -> str:
        if not reference.claim_name:
            return f'the claim of template "{reference.name}" is not created yet'
        name = f'resourceclaim "{reference.claim_name}"'
        if claim is None:
            return f"{name} not found"
        if reference.is_generated and claim.owner_uid != raw.uid:
            return f"{name} was not created for this pod"
        if claim.terminating:
            return f"{name} is being deleted"
        if self._writing.get(claim.key, raw.uid) != raw.uid:
            return f"{name} is in the process of being allocated"
        return ""

    def _refusal(self, raw: Pod, claims: Sequence[ResourceClaim]) -> str:
        """Return why a pod with these claims can never be served as it is; empty if it can."""
        if raw.neuron is not None:
            return "pod asks for Neuron by counts and has resource claims: use one of the two"
        for claim in claims:
            if claim.unserved:
                return f'resourceclaim "{claim.name}": {claim.unserved} is not served by this scheduler'
            if claim.reserved_for_others:
                return f'resourceclaim "{claim.name}" is reserved for something that is no pod'
            if claim.allocation is None and raw.group is not None and self._members[claim.key, raw.group.key] > 1:
                return f'resourceclaim "{claim.name}" has no devices yet, and several pods of its group share it'
        requests = [request for claim in claims for request in claim.requests]
        selecting = sum(len(selector) for request in requests for selector in request.selectors)
        for count, most, what in (
            (sum(len(claim.constraints) for claim in claims), MOST_CONSTRAINTS, "constraints"),
            (len(requests), MOST_REQUESTS, "requests"),
            (selecting, MOST_SELECTING, "characters of selectors"),
        ):
            if count > most:
                return f"its claims have {count} {what}, and at most {most} are served"
        return ""

    def _wanted_of(self, claims: Sequence[ResourceClaim]) -> WantedDevices | str:
        """Return what claims without devices ask for; or why that cannot be served."""
        requests, constraints = list[DeviceRequest](), list[tuple[str, tuple[int, ...]]]()
        for number, claim in enumerate(claims):
            numbers = dict[str, int]()
            for request in claim.requests:
                device_class = self._classes.get(request.class_name)
                where = f'resourceclaim "{claim.name}", request "{request.name}"'
                if device_class is None:
                    return f"{where}: device class {request.class_name} {NO_CLASS}"
                if device_class.unserved:
                    return f"{where}: {device_class.unserved} of its class is not served by this scheduler"
                selectors = (*device_class.selectors, *request.selectors)
                unserved = next((each for each in map(compile_selector, selectors) if isinstance(each, str)), "")
                if unserved:
                    return f"{unserved} ({where})"
                numbers[request.name] = len(requests)
                config = device_class.config
                requests.append(attrs.evolve(request, claim=number, selectors=selectors, class_config=config))
            for each in claim.constraints:
                names = each.requests or tuple(numbers)
                constraints.append((each.attribute, tuple(numbers[name] for name in names if name in numbers)))
        return WantedDevices(tuple(requests), tuple(constraints))

    def _request(self, wanted: WantedDevices) -> NeuronRequest:
        """Return the request; where only the node says how many Neuron devices it is for, the largest node counts."""
        neuron = [each for each in wanted.requests if NEURON_DRIVER in "".join(each.selectors)]
        is_open = any(not each.count or WHOLE in "".join(each.selectors) for each in neuron)
        total = self._largest if is_open else sum(each.count for each in neuron)
        selecting = sum(len(selector) for request in wanted.requests for selector in request.selectors)
        much = len(wanted.requests) > 4 or len(wanted.constraints) > 2 or selecting > 600
        return NeuronRequest(Unit.DEVICE, (total,), total, resource=NEURON_CLAIMS, wanted=wanted, asks_much=much)

    def plan(self, pod: Pod, node: Node, sets: Sequence[int]) -> tuple[ClaimWrite, ...]:
        """Return what is to be written to a pod's claims, whose requests get these sets of a node's devices."""
        results = defaultdict[int, list[tuple[DeviceRequest, DeviceKey]]](list)
        wanted = None if pod.neuron is None else pod.neuron.wanted
        if node.published is not None and wanted is not None:
            for request, chosen in zip(wanted.requests, sets, strict=True):
                results[request.claim] += [(request, key) for key in node.published.keys_of((chosen,), node.name)]
        claims, numbers = self._claims_of(pod)[0], {uid: number for number, uid in enumerate(pod.open_claims)}
        return tuple(ClaimWrite(each, node.name, tuple(results[numbers.get(each.uid, -1)])) for each in claims)


def _keys_of(raw: Pod) -> dict[str, None]:
    """Return the keys of the claims that a pod refers to, each once."""
    return dict.fromkeys(f"{raw.namespace}/{each.claim_name}" for each in raw.claims if each.claim_name)
