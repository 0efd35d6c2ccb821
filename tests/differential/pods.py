"""Generated pods, bound and pending, as they are sent to the API server."""

from random import Random

from tests.differential.neighbours import affinity, pod_labels, spread_constraints
from tests.differential.nodes import node_affinity, node_selector, tolerations
from tests.differential.storage import pod_volumes
from tests.differential.vocabulary import NAMESPACES, Object, Vocabulary, chance, given, several, sometimes

NOMINATED = "nominated"
"""The scheduler of pods that wait for others to leave: it may find no victims, and so leaves their nomination alone."""
PRIORITIES = (0, 0, 5, -7)
PORTS = (80, 443)
ADDRESSES = ("", "", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::", "::1")


def bound_pod(dice: Random, name: str, node: str, vocabulary: Vocabulary, *, claims: str) -> Object:
    """Return a bound pod, without the fields that only pending pods need. Its claims' names begin with `claims`."""
    pod = _pod(dice, name, quiet=vocabulary.quiet)
    pod["spec"] |= {"nodeName": node, "terminationGracePeriodSeconds": 3600}
    if vocabulary.volumes and chance(dice, 0.4):
        _with_volumes(dice, pod, claims)
    if vocabulary.affinity and chance(dice, 0.3):
        pod["spec"]["affinity"] = {"podAntiAffinity": affinity(dice)}
    status = sometimes(dice, 0.25, lambda: _status(dice, pod["spec"])) or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        # kube-scheduler frees a port with the first of two pods that claim it; see docs/differences.md.
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            container.pop("ports", None)
    return pod | given(status=status)


def nominated_pod(dice: Random, name: str, node: str, vocabulary: Vocabulary) -> Object:
    """Return a pod that is nominated to a node; it keeps its space there and is not a scenario."""
    pod = _pod(dice, name, quiet=vocabulary.quiet)
    if vocabulary.affinity and chance(dice, 0.4):
        pod["spec"]["affinity"] = {"podAntiAffinity": affinity(dice)}
    pod["spec"] |= {"schedulerName": NOMINATED, "preemptionPolicy": "Never", "priority": dice.choice(PRIORITIES)}
    return pod | {"status": {"nominatedNodeName": node}}


def pending_pod(dice: Random, name: str, names: list[str], vocabulary: Vocabulary, *, claims: str) -> Object:
    """Return a pending pod that may use nodes with those names."""
    pod = _pod(dice, name, quiet=vocabulary.quiet)
    if vocabulary.volumes and chance(dice, 0.75):
        _with_volumes(dice, pod, claims)
    near = vocabulary.affinity and chance(dice, 0.4)
    apart = vocabulary.affinity and chance(dice, 0.3)
    picky = 0.3 if vocabulary.spread or not vocabulary.quiet else 0.1
    rules = given(
        nodeAffinity=sometimes(dice, picky, lambda: node_affinity(dice, names)),
        podAffinity=affinity(dice) if near else {},
        podAntiAffinity=affinity(dice) if apart else {},
    )
    pod["spec"] |= given(
        affinity=rules,
        nodeSelector=sometimes(dice, picky / 2, lambda: node_selector(dice)),
        tolerations=sometimes(dice, 0.5, lambda: tolerations(dice)),
        priority=dice.choice(PRIORITIES),
        topologySpreadConstraints=spread_constraints(dice) if vocabulary.spread and chance(dice, 0.6) else [],
    )
    return pod


def _pod(dice: Random, name: str, *, quiet: bool) -> Object:
    whole = chance(dice, 0.08)  # requests of the pod, not of its containers
    small = whole or quiet or chance(dice, 0.5)
    containers = several(dice, 2, lambda: _container(dice, small=small) | _restarts(dice))
    init = sometimes(dice, 0.25, lambda: several(dice, 3, lambda: _init_container(dice, small=small))) or []
    for number, container in enumerate((*init, *containers)):
        container["name"] = f"c{number}"
    on_host = chance(dice, 0.06)
    spec = given(
        containers=_valid_ports(containers, on_host=on_host),
        initContainers=_valid_ports(init, on_host=on_host),
        hostNetwork=on_host or None,
        overhead=sometimes(dice, 0.1, lambda: {"cpu": "250m", "memory": dice.choice(["64Mi", "1Gi"])}),
        resources=_whole(dice) if whole else {},
    )
    namespace = "default" if chance(dice, 0.75 if quiet else 0.6) else dice.choice(sorted(NAMESPACES))
    metadata = {"name": name, "namespace": namespace, "labels": pod_labels(dice)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _with_volumes(dice: Random, pod: Object, claims: str) -> None:
    pod["spec"]["volumes"] = pod_volumes(dice, claims)
    if chance(dice, 0.9):
        pod["metadata"]["namespace"] = "default"  # most claims are there


def _container(dice: Random, *, small: bool) -> Object:
    ports = sometimes(dice, 0.1 if small else 0.4, lambda: several(dice, 2, lambda: _port(dice)))
    return given(image="main:1", resources=_small(dice) if small else _large(dice), ports=ports)


def _init_container(dice: Random, *, small: bool) -> Object:
    container = _container(dice, small=small)
    return container | ({"restartPolicy": "Always"} if chance(dice, 0.5) else _restarts(dice))


def _restarts(dice: Random) -> Object:
    """Return, rarely, a container's restart rules; one of them is a feature that nodes declare."""
    if not chance(dice, 0.06):
        return {}
    codes = {"operator": "In", "values": [42]}
    rule = {"action": dice.choice(["Restart", "RestartAllContainers"]), "exitCodes": codes}
    policy = dice.choice(["Never", "OnFailure"])
    return given(restartPolicy=policy, restartPolicyRules=sometimes(dice, 0.7, lambda: [rule]))


def _small(dice: Random) -> Object:
    return given(requests=dice.choice([{}, {"cpu": "10m"}, {"memory": "1Mi"}, {"cpu": "5m", "memory": "3M"}]))


def _large(dice: Random) -> Object:
    requests = {"cpu": dice.choice(["0", "500m", "1", "1.5", "3", "0.0015", "9"])}
    memory = dice.choice(["1Gi", "3Gi", "2500M", "0.5Gi", "1e9", "20Gi"])
    requests |= {"memory": memory} if chance(dice, 0.6) else {}
    requests |= sometimes(dice, 0.2, lambda: {"ephemeral-storage": dice.choice(["1Gi", "30Gi"])}) or {}
    limits: dict[str, str] = {}
    if chance(dice, 0.25):
        limits["example.com/gpu"] = dice.choice(["1", "2", "0"])
    if chance(dice, 0.1):
        limits["hugepages-2Mi"] = dice.choice(["2Mi", "8Mi"])
    if chance(dice, 0.1):
        limits |= {"cpu": "2"}
        requests.pop("cpu")
    return given(requests=requests, limits=limits)


def _whole(dice: Random) -> Object:
    requests = {"cpu": dice.choice(["500m", "2"])} if chance(dice, 0.7) else {}
    requests |= sometimes(dice, 0.7, lambda: {"memory": dice.choice(["1Gi", "5Gi"])}) or {}
    return given(requests=requests, limits={"cpu": "3"} if chance(dice, 0.2) else {})


def _port(dice: Random) -> Object:
    number = dice.choice(PORTS)
    return given(
        containerPort=number,
        hostPort=dice.choice([number, number, 0]),
        hostIP=dice.choice(ADDRESSES),
        protocol=dice.choice(["", "TCP", "UDP", "SCTP"]),
    )


def _valid_ports(containers: list[Object], *, on_host: bool) -> list[Object]:
    """Drop ports that the API server refuses as duplicates, and on the host's network their host ports."""
    seen = set()
    for container in containers:
        kept = []
        for port in container.pop("ports", ()):
            key = (port.get("hostIP"), port.get("protocol", "TCP"), port["containerPort"])
            if key not in seen:
                seen.add(key)
                kept.append({name: value for name, value in port.items() if not (on_host and name == "hostPort")})
        if kept:
            container["ports"] = kept
    return containers


def _status(dice: Random, spec: Object) -> Object:
    """Return a kubelet's status: the pod has ended, or it has other resources than it asks for."""
    if chance(dice, 0.4):
        return {"phase": dice.choice(["Succeeded", "Failed", "Running"])}
    pending = {"type": "PodResizePending", "status": "True", "reason": dice.choice(["Infeasible", "Deferred"])}
    whole = {"allocatedResources": _allocated(dice), "resources": {"requests": _actuated(dice)}}
    return given(
        phase="Running",
        conditions=[pending] if chance(dice, 0.5) else [],
        containerStatuses=[_container_status(dice, container) for container in spec["containers"]],
        initContainerStatuses=[
            _container_status(dice, container) for container in spec.get("initContainers", ()) if chance(dice, 0.7)
        ],
    ) | (whole if "resources" in spec and chance(dice, 0.8) else {})


def _container_status(dice: Random, container: Object) -> Object:
    return {
        "name": container["name"],
        "image": "main:1",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "allocatedResources": _allocated(dice),
        "resources": {"requests": _actuated(dice)},
    }


def _allocated(dice: Random) -> Object:
    return {"cpu": dice.choice(["100m", "2"]), "memory": "1Gi"}


def _actuated(dice: Random) -> Object:
    return {"cpu": dice.choice(["200m", "3"]), "memory": dice.choice(["1Mi", "2Gi"])}
