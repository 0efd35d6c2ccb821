"""`kubectl apply -k manifests/`: a real API server accepts the objects, and they work there as documented."""

import json
import re
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import anyio
import pytest
import yaml

from neuron_scheduler import __version__, cli
from neuron_scheduler.kube.objects.devices import CLAIM_KINDS, TAINT_RULES
from neuron_scheduler.kube.objects.pods import PODS as RESOURCE
from neuron_scheduler.kube.reviews import CLAIMING, rights_to_watch
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.neuron.topology import illegal_count
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins.registry import PREFERENCES
from neuron_scheduler.serving import server
from neuron_scheduler.settings.arguments import settings_from
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profile_config import ProfileConfig
from tests.control_plane.binaries import RELEASE, before
from tests.control_plane.objects import bind, create_pod, pod_manifest
from tests.control_plane.rest import MERGE, STRATEGIC, ApiError, Object, RestClient
from tests.control_plane.server import SCHEDULER, ControlPlane, User, run_control_plane
from tests.end_to_end.rights import granted
from tests.support import kustomize
from tests.support.builders import machine, node, request
from tests.support.harness import cluster_of
from tests.support.kustomize import KUBECTL, ROOT, kubectl
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.main_job  # what needs a control plane

CONFIG = "neuron-scheduler-config"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/my-scheduler"
PODS = "/api/v1/namespaces/default/pods"
ALLOCATION = {"AWS_NEURON_IDS": "0", "NEURON_ALLOC_TIME": "1", "NEURON_ALLOCATED": "false"}
KEYS = [
    *ALLOCATION,
    "NEURON_RESOURCE_TYPE",
    "NEURON_CORES",
    "NEURON_DEVS",
    "neuron-scheduler/allocation",
    "neuron-scheduler/leader",
]
NODE = User("system:node:n1", ("system:nodes",))
NODE_ROLE_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "nodes-of-tests"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
    "subjects": [{"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}],
}
MIRROR = {"kubernetes.io/config.mirror": "1"}
# The device plugin's rights on pods in AWS's documentation.
PLUGIN_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "neuron-device-plugin"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["update", "patch", "get", "list", "watch"]}],
}
PLUGIN_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "neuron-device-plugin"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "neuron-device-plugin"},
    "subjects": [{"kind": "ServiceAccount", "name": "neuron-device-plugin", "namespace": "kube-system"}],
}


@pytest.fixture(scope="module")
def rendered() -> dict[str, Object]:
    """Return the rendered objects of the kustomization by `Kind/name`."""
    return kustomize.rendered("manifests/my-scheduler")


@pytest.fixture(scope="module")
def examples() -> dict[str, Object]:
    """Return the example pods by file name. The other examples, of workloads, run in `tests/sandbox/test_demo.py`."""
    loaded = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "manifests/examples").glob("*.yaml")}
    return {name: example for name, example in sorted(loaded.items()) if example["kind"] == "Pod"}


@pytest.fixture(scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    """
    Run an API server of our own, on which the manifests are applied once, as a user does.

    Not the one of the session, where other tests create pods with nodeName and bind them.
    """
    async with run_control_plane(users=[NODE]) as plane:
        kubeconfig = plane.kubeconfig(plane.folder / "kubeconfig")
        for folder in ("manifests/lease-watch", "manifests/my-scheduler"):
            await anyio.to_thread.run_sync(kubectl, "apply", "-k", folder, "--kubeconfig", kubeconfig)
        for item in (PLUGIN_ROLE, PLUGIN_BINDING, NODE_ROLE_BINDING):
            await plane.admin.apply(item)

        async def forgery_refused() -> bool:
            forged = pod_manifest("forged", annotations=ALLOCATION)
            status, _ = await plane.admin.request("POST", PODS, forged, dryRun="All")
            return status == 403

        await until(forgery_refused)
        yield plane


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    """Call until the result is true: an API server does not report when a policy has reached its admission."""
    with anyio.fail_after(PATIENCE):
        while not await met():  # noqa: ASYNC110 - the condition is another process's
            await anyio.sleep(0.02)


def refusal(answer: Object) -> str:
    """Return the sentence of a policy's refusal."""
    return str(answer["message"]).rpartition("denied request: ")[2]


async def bind_as(
    api: RestClient, name: str, annotations: Mapping[str, str], *, path: str = "", **parameters: str
) -> tuple[int, Object]:
    """Bind a pod by name, by default by its own path; return status and answer."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": dict(annotations)},
        "target": {"kind": "Node", "name": "n1"},
    }
    return await api.request("POST", path or f"{PODS}/{name}/binding", binding, **parameters)


async def hold_lease(api: RestClient, holder: str | None) -> None:
    """Set the holder of the Lease, or leave the field out."""
    metadata = {"name": "my-scheduler", "namespace": "kube-system"}
    await api.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {"leaseDurationSeconds": 15} | ({} if holder is None else {"holderIdentity": holder}),
        }
    )


# -- without a cluster -------------------------------------------------------------------------------------------------


def test_the_kustomization_is_complete(rendered: dict[str, Object]) -> None:
    """Every object exists, is labelled, and is in kube-system if it has a namespace."""
    assert sorted(rendered) == [
        "ClusterRole/neuron-scheduler",
        "ClusterRoleBinding/neuron-scheduler",
        "ConfigMap/neuron-scheduler-config",
        "Deployment/my-scheduler",
        "NetworkPolicy/neuron-scheduler",
        "PodDisruptionBudget/neuron-scheduler",
        "Role/neuron-scheduler",
        "RoleBinding/neuron-scheduler",
        "ServiceAccount/neuron-scheduler",
        "ValidatingAdmissionPolicy/neuron-scheduler-allocations",
        "ValidatingAdmissionPolicy/neuron-scheduler-leader",
        "ValidatingAdmissionPolicy/neuron-scheduler-name",
        "ValidatingAdmissionPolicy/neuron-scheduler-node-name",
        "ValidatingAdmissionPolicyBinding/neuron-scheduler-allocations",
        "ValidatingAdmissionPolicyBinding/neuron-scheduler-leader",
        "ValidatingAdmissionPolicyBinding/neuron-scheduler-name",
        "ValidatingAdmissionPolicyBinding/neuron-scheduler-node-name",
    ]
    for item in rendered.values():
        assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "neuron-scheduler"
        assert item["metadata"].get("namespace", "kube-system") == "kube-system"


def test_the_lease_watch_is_separate(rendered: dict[str, Object]) -> None:
    """`kubectl delete -k manifests/` deletes neither of its two objects, and it watches the Lease of the fence."""
    kept = list(yaml.safe_load_all(kubectl("kustomize", "manifests/lease-watch")))
    assert [item["kind"] for item in kept] == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    assert not {f"{item['kind']}/{item['metadata']['name']}" for item in kept} & rendered.keys()
    fence = [rendered[f"{item['kind']}/neuron-scheduler-leader"]["spec"] for item in kept]
    assert kept[0]["spec"]["paramKind"] == fence[0]["paramKind"]
    assert kept[1]["spec"]["paramRef"] == fence[1]["paramRef"]


def pod_template(rendered: dict[str, Object]) -> tuple[Object, Object, Object]:
    """Return the Deployment's pod metadata, pod spec and only container."""
    template = rendered["Deployment/my-scheduler"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    return template["metadata"], template["spec"], container


def test_the_version() -> None:
    """Package and project agree on it; image tags are the person's who builds."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


def test_your_own_kustomization(rendered: dict[str, Object], tmp_path: Path) -> None:
    """With all that the example has, image, replicas, memory and lists are set; changed settings restart all."""
    folder = kustomize.copied(tmp_path)
    example = (folder / "kustomization.example.yaml").read_text()
    used = re.sub(r"^# (?!With |write )", "", example[example.index("apiVersion:") :], flags=re.MULTILINE)
    (folder / "kustomization.yaml").write_text(used)
    settings = (folder / "my-scheduler" / "config.yaml").read_text()
    templates = list[Object]()
    for verbosity in (2, 4):
        (folder / "config.yaml").write_text(settings.replace("verbosity: 2", f"verbosity: {verbosity}"))
        items = kustomize.by_name(kubectl("kustomize", folder))
        (config,) = (item for name, item in items.items() if name.startswith(f"ConfigMap/{CONFIG}-"))
        assert f"verbosity: {verbosity}" in config["data"]["config.yaml"]
        _, spec, container = pod_template(items)
        assert items["Deployment/my-scheduler"]["spec"]["replicas"] == 3
        assert container["resources"]["limits"]["memory"] == "2Gi"
        assert spec["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
        assert container["image"] == "REGISTRY/neuron-scheduler:TAG"
        templates.append(items["Deployment/my-scheduler"]["spec"]["template"])
    assert templates[0] != templates[1]
    assert items.keys() - {f"ConfigMap/{config['metadata']['name']}"} == rendered.keys() - {f"ConfigMap/{CONFIG}"}
    lists = [items[f"ValidatingAdmissionPolicy/neuron-scheduler-{name}"] for name in ("name", "allocations")]
    assert ["another-scheduler" in item["spec"]["variables"][0]["expression"] for item in lists] == [True, True]


async def test_a_second_apply_changes_nothing(plane: ControlPlane) -> None:
    """Kubectl says so of all objects, except for a disruption budget."""
    flags = ("--kubeconfig", plane.folder / "kubeconfig")
    for folder in ("manifests/lease-watch", "manifests/my-scheduler"):
        lines = (await anyio.to_thread.run_sync(kubectl, "apply", "-k", folder, *flags)).splitlines()
        assert {line for line in lines if not line.endswith(" unchanged")} <= {
            "poddisruptionbudget.policy/neuron-scheduler configured"
        }


def config_of(rendered: dict[str, Object], folder: Path) -> Config:
    """Return the settings of the process in the pod: its arguments, with the ConfigMap where it is mounted."""
    _, spec, container = pod_template(rendered)
    (mount,), (volume,) = container["volumeMounts"], spec["volumes"]
    assert (mount["name"], volume) == (volume["name"], {"name": "config", "configMap": {"name": CONFIG}})
    for name, text in rendered[f"ConfigMap/{CONFIG}"]["data"].items():
        (folder / name).write_text(text)
    arguments = [argument.replace(mount["mountPath"], str(folder)) for argument in container["args"]]
    return settings_from(cli.parse(arguments))


def test_the_config_says_the_defaults(rendered: dict[str, Object], tmp_path: Path) -> None:
    """The settings in the ConfigMap are the defaults."""
    default = ProfileConfig(scheduler_name=Config().scheduler_name, preferences=tuple(PREFERENCES))
    assert config_of(rendered, tmp_path) == Config(profiles=(default,))


def test_the_flags_agree_with_the_manifests(
    rendered: dict[str, Object], examples: dict[str, Object], tmp_path: Path
) -> None:
    """Ports, grace period, Lease, scheduler name and selectors agree in all places."""
    metadata, spec, container = pod_template(rendered)
    config = config_of(rendered, tmp_path)
    assert (config.v, config.leader_elect) == (2, True)
    assert container["ports"] == [{"name": "http", "containerPort": config.port}]
    assert metadata["annotations"]["prometheus.io/port"] == str(config.port)
    assert spec["terminationGracePeriodSeconds"] >= config.shutdown_grace_period + 10
    assert spec["schedulerName"] != config.scheduler_name
    lease = {"name": config.leader_elect_resource_name, "namespace": config.leader_elect_resource_namespace}
    fence = rendered["ValidatingAdmissionPolicyBinding/neuron-scheduler-leader"]["spec"]["paramRef"]
    assert fence == lease | {"parameterNotFoundAction": "Allow"}
    (names,) = rendered["ValidatingAdmissionPolicy/neuron-scheduler-name"]["spec"]["variables"]
    assert (names["name"], names["expression"]) == (
        "names",
        str([profile.scheduler_name for profile in config.profiles]),
    )
    for name in ("Deployment/my-scheduler", "PodDisruptionBudget/neuron-scheduler"):
        selector = rendered[name]["spec"]["selector"]["matchLabels"]
        assert selector.items() <= metadata["labels"].items()
    assert {pod["spec"]["schedulerName"] for pod in examples.values()} == {config.scheduler_name}


def test_the_metrics_are_open_to_scrapers_only(rendered: dict[str, Object], tmp_path: Path) -> None:
    """The policy covers these pods, their two ports and namespaces; it does not restrict what the pods send."""
    metadata, _, _ = pod_template(rendered)
    config, policy = config_of(rendered, tmp_path), rendered["NetworkPolicy/neuron-scheduler"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= metadata["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"port": port, "protocol": "TCP"} for port in (config.port, config.secure_port)]
    assert all(peer.keys() == {"namespaceSelector"} and peer["namespaceSelector"] for peer in rule["from"])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the manifests with the component for secure metrics, added as in the README."""
    return kustomize.customized("my-scheduler", tmp_path_factory.mktemp("secured"), "secure-metrics")


def test_secure_metrics(rendered: dict[str, Object], secured: Path, tmp_path: Path) -> None:
    """The component adds its flags, port, Secret and rights, which agree, and does not change the probes."""
    items = kustomize.rendered(secured)
    assert items.keys() - rendered.keys() == {
        "ClusterRole/neuron-scheduler-metrics",
        "ClusterRoleBinding/neuron-scheduler-auth-delegator",
    }
    metadata, spec, container = pod_template(items)
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in spec["volumes"]} == {"config", "tls"}
    for name in ("config.yaml", "tls.crt", "tls.key"):
        (tmp_path / name).write_text(items[f"ConfigMap/{CONFIG}"]["data"].get(name, ""))
    arguments = [
        re.sub(rf"{mounts['tls']}|{mounts['config']}", str(tmp_path), argument) for argument in container["args"]
    ]
    config = settings_from(cli.parse(arguments))
    assert config.authorize_metrics
    assert container["ports"][1:] == [{"name": "https", "containerPort": config.secure_port}]
    prefix = "prometheus.io/"
    assert {key.removeprefix(prefix): metadata["annotations"][key] for key in metadata["annotations"]} == {
        "scrape": "true",
        "scheme": "https",
        "port": str(config.secure_port),
    }
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe] == pod_template(rendered)[2][probe]
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"], "the key is readable"


def test_claims(rendered: dict[str, Object], tmp_path: Path) -> None:
    """The component adds the flag, a policy, and the rights that the process asks for with it."""
    folder = ROOT / "manifests/components/claims"
    assert granted(folder / "rbac.yaml") == {*CLAIMING, *rights_to_watch((*CLAIM_KINDS, TAINT_RULES))}
    items = kustomize.rendered(kustomize.customized("my-scheduler", tmp_path, "claims"))
    assert items.keys() - rendered.keys() == {
        f"{kind}/neuron-scheduler-claims"
        for kind in (
            *("ClusterRole", "ClusterRoleBinding"),
            *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        )
    }
    assert config_of(items, tmp_path).claims


def test_the_probes_use_paths_of_the_server(rendered: dict[str, Object]) -> None:
    """Liveness and readiness have different paths, over plain HTTP, and a timeout longer than the endpoints' queue."""
    _, _, container = pod_template(rendered)
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")}
    assert probes == {"liveness": {"path": "/livez", "port": "http"}, "readiness": {"path": "/readyz", "port": "http"}}
    for limits in (server.PLAIN, server.TLS):
        longest_wait = limits.waiting / limits.rate
        assert all(longest_wait < container[f"{kind}Probe"]["timeoutSeconds"] for kind in ("liveness", "readiness"))


def test_there_is_an_example_for_each_family(examples: dict[str, Object]) -> None:
    """Each file is one pod for a type of the family it is named after, and asks for Neuron by name."""
    assert sorted(examples) == ["inf1", "inf2", "trn1", "trn2", "trn3"]
    for family, pod in examples.items():
        assert pod["spec"]["nodeSelector"]["node.kubernetes.io/instance-type"].startswith(f"{family}.")
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert limits.keys() <= {"aws.amazon.com/neuron", "aws.amazon.com/neuroncore"}


@pytest.mark.parametrize(
    ("family", "ids"),
    [("inf1", range(9)), ("inf2", range(3)), ("trn1", range(4)), ("trn2", range(8)), ("trn3", range(4))],
)
def test_the_examples_are_scheduled(examples: dict[str, Object], family: str, ids: range) -> None:
    """Each gets neighbouring ids on a node of its type, tainted as AWS's nodes are."""
    given = examples[family] | {"metadata": examples[family]["metadata"] | {"namespace": "default", "uid": "u"}}
    pod = RESOURCE.decode(json.dumps(given).encode()).value
    assert isinstance(pod, Pod)
    instance_type = given["spec"]["nodeSelector"]["node.kubernetes.io/instance-type"]
    taints = (Taint("aws.amazon.com/neuron", Effect.NO_SCHEDULE, "true"),)
    cluster = cluster_of([node("other", "trn1.2xlarge"), node("theirs", instance_type, taints=taints)])
    decision = schedule_pod(cluster, pod, default_profile("my-scheduler"))
    assert isinstance(decision, Decision)
    assert decision.placement is not None
    assert (decision.node_name, decision.placement.ids) == ("theirs", tuple(ids))


def test_the_trn3_example_fits_both_descriptions_of_trn3(examples: dict[str, Object]) -> None:
    """AWS's source has 16 devices a node, its documentation 4: the example's count is legal on both."""
    (count,) = examples["trn3"]["spec"]["containers"][0]["resources"]["limits"].values()
    for devices in (16, 4):
        assert illegal_count(machine("trn3.any", devices=devices, cores_per_device=4), request(count)) is None


# -- on a real API server ----------------------------------------------------------------------------------------------


@pytest.mark.control_plane
@pytest.mark.parametrize(
    "source", [("-k", "manifests/lease-watch"), ("-k", "manifests/my-scheduler"), ("-f", "manifests/examples/")]
)
async def test_the_server_accepts_everything(plane: ControlPlane, source: tuple[str, str]) -> None:
    """A server-side dry run of the user's own command finds no unknown field and no bad value."""
    flags = ("--dry-run=server", "--validate=strict", "--kubeconfig", plane.folder / "kubeconfig")
    output = await anyio.to_thread.run_sync(kubectl, "apply", *source, *flags)
    assert "(server dry run)" in output


@pytest.mark.control_plane
async def test_the_server_accepts_the_components(plane: ControlPlane, secured: Path) -> None:
    """The same holds for the components."""
    flags = ("--dry-run=server", "--validate=strict", "--kubeconfig", plane.folder / "kubeconfig")
    output = await anyio.to_thread.run_sync(kubectl, "apply", "-k", secured, *flags)
    assert "neuron-scheduler-auth-delegator created (server dry run)" in output


@pytest.mark.control_plane
async def test_only_the_holder_of_the_lease_binds(plane: ControlPlane) -> None:
    """
    The old holder's Binding is refused after a takeover, whoever holds the Lease now, and so is one without a holder.

    Also if the field has no value, with which the policy's expression fails: it refuses our account only.
    """
    token = await plane.token_for("kube-system", "neuron-scheduler")
    for name in ("a", "b", "c"):
        await create_pod(plane.admin, pod_manifest(name))
    async with plane.client(token) as scheduler:

        async def answers(status: int, holder: str, pod: str = "b") -> bool:
            seen, _ = await bind_as(scheduler, pod, {"neuron-scheduler/leader": holder}, dryRun="All")
            return seen == status

        await hold_lease(plane.admin, "one")
        await until(lambda: answers(201, "one"))
        status, _ = await bind_as(scheduler, "a", {"neuron-scheduler/leader": "one", **ALLOCATION})
        assert status == 201
        await hold_lease(plane.admin, "two")
        await until(lambda: answers(201, "two"))
        status, answer = await bind_as(scheduler, "b", {"neuron-scheduler/leader": "one", **ALLOCATION})
        assert (status, refusal(answer)) == (422, "this scheduler does not hold the Lease kube-system/my-scheduler")
        assert (await bind_as(scheduler, "b", {}))[0] == 422
        assert (await bind_as(scheduler, "b", {"neuron-scheduler/leader": "two", **ALLOCATION}))[0] == 201
        for nobody in ("", None):
            await hold_lease(plane.admin, "two")
            await until(lambda: answers(201, "two", "c"))
            await hold_lease(plane.admin, nobody)
            await until(lambda: answers(422, "two", "c"))
            assert await answers(422, "", "c"), "nobody holds it, so nobody may bind"
    pods = [await plane.admin.get(f"{PODS}/{name}") for name in ("a", "b")]
    assert [pod["metadata"]["annotations"]["neuron-scheduler/leader"] for pod in pods] == ["one", "two"]
    await bind(plane.admin, await plane.admin.get(f"{PODS}/c"), "n1")  # other schedulers bind as before


@pytest.mark.control_plane
async def test_without_a_lease_every_scheduler_binds(plane: ControlPlane) -> None:
    """
    On a cluster on which the manifests have just been applied, kube-scheduler binds our own Deployment's pods.

    So whoever may delete the Lease and bind pods can give them an allocation: the gap that is accepted.
    """
    await create_pod(plane.admin, pod_manifest("d"))
    await hold_lease(plane.admin, "somebody")
    async with plane.client(await plane.token_for("kube-system", "neuron-scheduler")) as scheduler:

        async def answers(status: int) -> bool:
            seen, _ = await bind_as(scheduler, "d", {"neuron-scheduler/leader": "nobody"}, dryRun="All")
            return seen == status

        await until(lambda: answers(422))
        assert (await bind_as(plane.admin, "d", ALLOCATION, dryRun="All"))[0] == 403
        await plane.admin.delete(LEASE)
        await until(lambda: answers(201))
    assert (await bind_as(plane.admin, "d", ALLOCATION, dryRun="All"))[0] == 201
    await bind(plane.admin, await plane.admin.get(f"{PODS}/d"), "n1")


@pytest.mark.control_plane
async def test_no_other_account_binds_with_an_allocation(plane: ControlPlane) -> None:
    """By both ways to bind: each of the annotations is refused, the holder's name beside it or not; others are not."""
    await create_pod(plane.admin, pod_manifest("e"))
    await hold_lease(plane.admin, "one")

    async def answers(status: int, annotations: Mapping[str, str], path: str = "") -> bool:
        seen, answer = await bind_as(plane.admin, "e", annotations, path=path, dryRun="All")
        assert seen != 403 or refusal(answer).startswith("only the Neuron scheduler may give a pod an allocation")
        return seen == status

    await until(lambda: answers(403, {KEYS[0]: "0"}))
    for key in KEYS:
        assert await answers(403, {key: ""}), key
        assert await answers(403, {key: "0", "neuron-scheduler/leader": "one"}), key
        assert await answers(403, {key: "0"}, "/api/v1/namespaces/default/bindings"), key
    for path in ("", "/api/v1/namespaces/default/bindings"):
        assert await answers(201, {"own": "1"}, path)


@pytest.mark.control_plane
@pytest.mark.parametrize("key", KEYS)
async def test_no_account_creates_a_pod_with_an_allocation(plane: ControlPlane, key: str) -> None:
    """Each of the annotations is refused, even to an administrator and even if it is empty."""
    for value in ("0", ""):
        with pytest.raises(ApiError, match=f"may write the annotations {key}$") as refused:
            await create_pod(plane.admin, pod_manifest("refused", annotations={key: value}))
        assert refused.value.status == 403


@pytest.mark.control_plane
async def test_an_allocation_belongs_to_scheduler_and_plugin(plane: ControlPlane) -> None:
    """On a bound pod the plugin flips its flag; others can change everything except the allocation."""
    admin, path = plane.admin, f"{PODS}/p"
    await create_pod(admin, pod_manifest("p", annotations={"own": "1"}))
    await hold_lease(admin, "one")
    async with plane.client(await plane.token_for("kube-system", "neuron-scheduler")) as scheduler:

        async def bound() -> bool:
            return (await bind_as(scheduler, "p", ALLOCATION | {"neuron-scheduler/leader": "one"}))[0] == 201

        await until(bound)

    def annotation(key: str, value: str | None) -> Object:
        return {"metadata": {"annotations": {key: value}}}

    for target, change in (
        (path, annotation("AWS_NEURON_IDS", "1")),
        (path, annotation("NEURON_ALLOCATED", "true")),
        (path, annotation("AWS_NEURON_IDS", None)),
        (f"{path}/status", annotation("AWS_NEURON_IDS", "1")),
    ):
        with pytest.raises(ApiError, match="may write the annotations") as refused:
            await admin.patch(target, change)
        assert refused.value.status == 403
    await admin.patch(path, annotation("own", "2"))
    await admin.patch(f"{path}/status", {"status": {"phase": "Running"}})
    async with plane.client(await plane.token_for("kube-system", "neuron-device-plugin")) as plugin:
        flipped = await plugin.patch(path, annotation("NEURON_ALLOCATED", "true"), content_type=STRATEGIC)
    want = ALLOCATION | {"own": "2", "neuron-scheduler/leader": "one", "NEURON_ALLOCATED": "true"}
    assert flipped["metadata"]["annotations"] == want


@pytest.mark.control_plane
async def test_the_scheduler_changes_no_metadata_of_a_pod(plane: ControlPlane) -> None:
    """Its right to patch pods/status includes labels, annotations and finalizers; such changes are refused."""
    path = f"{PODS}/status-only"
    await create_pod(plane.admin, pod_manifest("status-only", labels={"a": "1"}, annotations={"own": "1"}))
    async with plane.client(await plane.token_for("kube-system", "neuron-scheduler")) as scheduler:
        for change in ({"labels": {"a": "2"}}, {"annotations": {"own": "2"}}, {"finalizers": ["example.com/mine"]}):
            with pytest.raises(ApiError, match="changes the status of pods, and no labels") as refused:
                await scheduler.patch(f"{path}/status", {"metadata": change})
            assert refused.value.status == 403
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
        patched = await scheduler.patch(
            f"{path}/status", {"status": {"conditions": [condition]}}, content_type=STRATEGIC
        )
    assert [entry["message"] for entry in patched["status"]["conditions"]] == ["full"]
    await plane.admin.patch(f"{path}/status", {"metadata": {"labels": {"a": "3"}, "annotations": {"own": "3"}}})


# -- which pods may ask for Neuron -------------------------------------------------------------------------------------


def asking(name: str, limits: Mapping[str, str], *, init: str = "", **spec: object) -> Object:
    """Return a pod of one container with these limits; `init` puts them on an init container, or on a sidecar."""
    pod = pod_manifest(name, **spec)  # type: ignore[arg-type]  # passed on as they are
    container = {"name": "asks", "image": "main:1", "resources": {"limits": dict(limits)}}
    if init == "":
        pod["spec"]["containers"].append(container)
    else:
        pod["spec"]["initContainers"] = [container | ({"restartPolicy": "Always"} if init == "sidecar" else {})]
    return pod


async def created(api: RestClient, pod: Object) -> tuple[int, str]:
    """Try to create a pod in a dry run; return the status and the refusal's sentence."""
    status, answer = await api.request("POST", PODS, pod, dryRun="All")
    return status, refusal(answer) if status >= 400 else ""


@pytest.mark.control_plane
@pytest.mark.parametrize("scheduler_name", ["default-scheduler", "my-scheduler"])
@pytest.mark.parametrize(
    ("resource", "init"),
    [
        ("aws.amazon.com/neuron", ""),
        ("aws.amazon.com/neurondevice", ""),
        ("aws.amazon.com/neuroncore", ""),
        ("aws.amazon.com/neuron", "init"),
        ("aws.amazon.com/neuroncore", "sidecar"),
    ],
)
async def test_a_pod_with_neuron_names_no_node(
    plane: ControlPlane, *, resource: str, init: str, scheduler_name: str
) -> None:
    """For any container, resource name and scheduler name: 403, and what to do instead."""
    pod = asking("asking", {resource: "1"}, init=init, scheduler_name=scheduler_name)
    assert await created(plane.admin, pod) == (201, "")
    pod["spec"]["nodeName"] = "n1"
    status, sentence = await created(plane.admin, pod)
    assert status == 403
    assert sentence.startswith("a pod that asks for Neuron may not name its node")
    assert "remove spec.nodeName, set schedulerName" in sentence


@pytest.mark.control_plane
@pytest.mark.parametrize("limits", [{}, {"aws.amazon.com/neuron": "0"}, {"example.com/neuron": "1"}])
async def test_other_pods_may_name_a_node(plane: ControlPlane, limits: Mapping[str, str]) -> None:
    """A pod without Neuron is accepted."""
    assert await created(plane.admin, asking("asking", limits, nodeName="n1", scheduler_name="other")) == (201, "")


@pytest.mark.control_plane
async def test_a_request_for_neuron_has_a_limit(plane: ControlPlane) -> None:
    """The API server itself refuses a request without a limit, so the policies need to check limits only."""
    pod = asking("asking", {}, nodeName="n1")
    pod["spec"]["containers"][-1]["resources"] = {"requests": {"aws.amazon.com/neuron": "1"}}
    status, answer = await plane.admin.request("POST", PODS, pod, dryRun="All")
    assert status == 422
    assert "Limit must be set for non overcommitable resources" in answer["message"]


@pytest.mark.control_plane
async def test_only_a_node_reports_a_mirror_pod(plane: ControlPlane) -> None:
    """The annotation of a mirror pod exempts a node's kubelet, but no other user who writes it."""
    pod = asking("asking", {"aws.amazon.com/neuron": "1"}, nodeName="n1", scheduler_name="default-scheduler")
    mirror = {**pod, "metadata": {**pod["metadata"], "annotations": MIRROR}}
    async with plane.client(NODE.token) as node:

        async def may_create() -> bool:
            return await created(node, asking("asking", {})) == (201, "")

        await until(may_create)
        assert await created(node, mirror) == (201, "")
        assert (await created(node, pod))[0] == 403
    assert (await created(plane.admin, mirror))[0] == 403


async def warnings(plane: ControlPlane, pod: Object) -> str:
    """Create a pod in a dry run with the user's own kubectl; return its warnings."""
    path = plane.folder / "pod.json"
    path.write_text(json.dumps(pod))
    flags = ("-f", path, "--dry-run=server", "--kubeconfig", plane.folder / "kubeconfig")
    return (await anyio.run_process([KUBECTL, "create", *flags])).stderr.decode()


@pytest.mark.control_plane
async def test_a_pod_with_neuron_and_another_scheduler_is_warned_of(plane: ControlPlane) -> None:
    """The user's own kubectl shows what to set; with the right name, or without Neuron, there is no warning."""
    limits = {"aws.amazon.com/neuron": "1"}
    for name in ("default-scheduler", "another"):
        warned = await warnings(plane, asking("asking", limits, scheduler_name=name))
        assert f"a pod that asks for Neuron needs schedulerName: my-scheduler, but has {name};" in warned
    assert await warnings(plane, asking("asking", limits)) == ""
    assert await warnings(plane, asking("asking", {}, scheduler_name="another")) == ""


@pytest.fixture
async def customized(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Yield a function that applies the manifests with components; at the end they are applied without them."""
    flags = ("--kubeconfig", plane.folder / "kubeconfig")
    added = set[str]()

    async def apply(*components: str) -> None:
        folder = kustomize.customized("my-scheduler", tmp_path, *components)
        await anyio.to_thread.run_sync(kubectl, "apply", "-k", folder, *flags)
        added.update(components)

    yield apply
    await anyio.to_thread.run_sync(kubectl, "apply", "-k", "manifests/my-scheduler", *flags)
    if "set-scheduler" in added:
        policy = ROOT / "manifests/components/set-scheduler/policy.yaml"
        await anyio.to_thread.run_sync(kubectl, "delete", "--ignore-not-found", "-f", policy, *flags)
    unnamed, named = (asking("asking", {"aws.amazon.com/neuron": "1"}, scheduler_name=name) for name in ("", "another"))
    del unnamed["spec"]["schedulerName"]

    async def without_components() -> bool:
        answers = [await plane.admin.request("POST", PODS, pod, dryRun="All") for pod in (unnamed, named)]
        names = [answer["spec"]["schedulerName"] for status, answer in answers if status == 201]
        return names == ["default-scheduler", "another"]

    await until(without_components)


@pytest.mark.control_plane
async def test_a_component_requires_our_scheduler(
    plane: ControlPlane, customized: Callable[..., Awaitable[None]]
) -> None:
    """With it the warning is a refusal, except for a mirror pod, which already runs."""
    await customized("require-scheduler")
    pod = asking("asking", {"aws.amazon.com/neuron": "1"}, scheduler_name="another")

    async def refused() -> bool:
        return (await created(plane.admin, pod))[0] == 403

    await until(refused)
    assert (await created(plane.admin, pod))[1].startswith("a pod that asks for Neuron needs schedulerName: my-sch")
    assert await created(plane.admin, asking("asking", {"aws.amazon.com/neuron": "1"})) == (201, "")
    assert await created(plane.admin, asking("asking", {}, scheduler_name="another")) == (201, "")
    pod["spec"]["nodeName"], pod["metadata"]["annotations"] = "n1", MIRROR
    async with plane.client(NODE.token) as node:
        assert await created(node, pod) == (201, "")


@pytest.mark.control_plane
async def test_a_component_sets_our_scheduler(plane: ControlPlane, customized: Callable[..., Awaitable[None]]) -> None:
    """A pod with Neuron that names no scheduler gets ours, also under the component that requires it; others do not."""
    if before(RELEASE, "1.36"):  # which serves MutatingAdmissionPolicy in v1; older servers refuse the component
        with pytest.raises(AssertionError, match='no matches for kind "MutatingAdmissionPolicy"'):
            await customized("set-scheduler")
        return
    await customized("require-scheduler", "set-scheduler")

    async def scheduler_of(limits: Mapping[str, str], name: str, **options: str) -> str:
        pod = asking("asking", limits, scheduler_name=name, **options)
        if name == "":
            del pod["spec"]["schedulerName"]
        status, answer = await plane.admin.request("POST", PODS, pod, dryRun="All")
        return str(answer["spec"]["schedulerName"]) if status == 201 else ""

    async def sets() -> bool:
        return await scheduler_of({"aws.amazon.com/neuron": "1"}, "") == "my-scheduler"

    await until(sets)
    assert await scheduler_of({"aws.amazon.com/neuroncore": "2"}, "", init="sidecar") == "my-scheduler"
    assert await scheduler_of({}, "") == "default-scheduler"
    assert await scheduler_of({}, "another") == "another"

    async def refuses_others() -> bool:
        return await scheduler_of({"aws.amazon.com/neuron": "1"}, "another") == ""

    await until(refuses_others)


# -- who gives Neuron devices to claims --------------------------------------------------------------------------------

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TAKEN_BACK = {"status": {"allocation": None}}


def allocated(driver: str) -> Object:
    """Return a patch that gives a claim a device."""
    device = {"request": "r", "driver": driver, "pool": "n1", "device": "d0"}
    return {"status": {"allocation": {"devices": {"results": [device]}}}}


@pytest.mark.control_plane
async def test_only_we_give_neuron_devices_to_claims(
    plane: ControlPlane, customized: Callable[..., Awaitable[None]]
) -> None:
    """
    kube-scheduler may give other drivers' devices; Kubernetes' controller takes Neuron's back, and nobody else. Before
    that nobody takes the finalizer away.

    When the policy is deleted as the component says, kube-scheduler may give them again.
    """
    await customized("claims")
    request = {"name": "r", "exactly": {"deviceClassName": "any"}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {"devices": {"requests": [request]}}}
    for name in ("free", "given"):
        await plane.admin.post(CLAIMS, claim | {"metadata": {"name": name}})
    tokens = [await plane.token_for("kube-system", name) for name in ("neuron-scheduler", "resource-claim-controller")]
    async with (
        plane.client(tokens[0]) as ours,
        plane.client(tokens[1]) as controller,
        plane.client(SCHEDULER.token) as kube_scheduler,
    ):

        async def answer(api: RestClient, name: str, change: Object, **parameters: str) -> tuple[int, str]:
            path = f"{CLAIMS}/{name}/status"
            status, text = await api.request("PATCH", path, change, content_type=MERGE, **parameters)
            return status, refusal(text) if status >= 400 else ""

        async def denied() -> bool:
            return (await answer(kube_scheduler, "free", allocated("neuron.aws.com"), dryRun="All"))[0] == 403

        async def granted() -> bool:
            return await answer(ours, "given", allocated("neuron.aws.com")) == (200, "")

        await until(denied)
        await until(granted)
        sentence = "only the Neuron scheduler gives Neuron devices to claims; set its schedulerName in the pod"
        for api in (kube_scheduler, controller, plane.admin):
            assert await answer(api, "free", allocated("neuron.aws.com"), dryRun="All") == (403, sentence)
        assert await answer(kube_scheduler, "free", allocated("dra.net"), dryRun="All") == (200, "")
        users = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}
        assert await answer(kube_scheduler, "given", users, dryRun="All") == (200, ""), "for a second pod"
        for api in (kube_scheduler, plane.admin):
            assert (await answer(api, "given", TAKEN_BACK, dryRun="All"))[0] == 403
        for api in (ours, controller):
            assert await answer(api, "given", TAKEN_BACK, dryRun="All") == (200, "")
        protection = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
        await plane.admin.request("PATCH", f"{CLAIMS}/given", protection, content_type=MERGE)
        for change, code in (({"metadata": {"finalizers": None}}, 403), ({"metadata": {"labels": {"a": "b"}}}, 200)):
            asked = await plane.admin.request("PATCH", f"{CLAIMS}/given", change, content_type=MERGE, dryRun="All")
            assert asked[0] == code
        flags = ("--kubeconfig", plane.folder / "kubeconfig")
        await anyio.to_thread.run_sync(kubectl, "delete", "-k", "manifests/components/claims/policy", *flags)

        async def may_give() -> bool:
            return not await denied()

        await until(may_give)
