"""`kubectl apply -k manifests/default-scheduler`: the objects, the components, and the files for kube-scheduler."""

import json
import re
from collections.abc import AsyncIterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import anyio
import pytest
import yaml

from neuron_scheduler import cli
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.settings.arguments import settings_from
from neuron_scheduler.settings.config import EXTENDER_ADDRESS
from tests.control_plane.component import Component
from tests.control_plane.kube_scheduler import kube_scheduler
from tests.control_plane.rest import Object
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.support.certificates import Authority
from tests.support.documented_commands import reader_shell, run_by
from tests.support.kustomize import ROOT, customized, kubectl, rendered

FOLDER = ROOT / "manifests" / "default-scheduler"
DEPLOYMENT, SERVICE = "Deployment/k8s-neuron-scheduler", "Service/k8s-neuron-scheduler"
BOTH_ROADS = "Deployment/my-scheduler"
PORT, NODE_PORT = 12345, 32700
SERVICE_NAME = "k8s-neuron-scheduler.kube-system.svc"
NAMESPACE = "/api/v1/namespaces/kube-system"
THIS = "tests/test_manifests_default_scheduler.py"
PLUGIN_SCORE, STEP = 100, 10  # MaxNodeScore; MaxNodeScore / MaxExtenderPriority: what a weight is multiplied by


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Object]:
    """Return the objects of manifests/ with this road."""
    return rendered(customized("default-scheduler", tmp_path_factory.mktemp("road")))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Object]:
    """Return the objects of manifests/ with the component `extender`."""
    return rendered(customized("my-scheduler", tmp_path_factory.mktemp("both"), "extender"))


def configuration(name: str) -> Object:
    """Return one of the configurations of kube-scheduler."""
    file: Object = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return file


def entry(name: str = "scheduler-config") -> Object:
    """Return the extender's entry in one of the configurations."""
    (extender,) = configuration(name)["extenders"]
    found: Object = extender
    return found


# -- the objects -------------------------------------------------------------------------------------------------------


def test_everything_else_is_shared(road: dict[str, Object]) -> None:
    """Apart from Service and Deployment the objects are those of manifests/, and only what has to differs."""
    custom = rendered("manifests/my-scheduler")
    assert road.keys() - custom.keys() == {DEPLOYMENT, SERVICE}
    assert custom.keys() - road.keys() == {BOTH_ROADS}
    assert {name for name in road.keys() & custom.keys() if road[name] != custom[name]} == {
        "ConfigMap/neuron-scheduler-config",
        "NetworkPolicy/neuron-scheduler",
        "ValidatingAdmissionPolicy/neuron-scheduler-name",
    }
    for item in road.values():
        assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "neuron-scheduler"
        assert item["metadata"].get("namespace", "kube-system") == "kube-system"


def test_the_deployment_is_an_extender(road: dict[str, Object], both: dict[str, Object]) -> None:
    """It runs the command `extender`; the port, the address and everything else are as in the other Deployment."""
    spec, other = (deepcopied(items) for items in (road[DEPLOYMENT]["spec"], both[BOTH_ROADS]["spec"]))
    assert container(spec)["args"][0] == "extender"
    assert container(other)["args"][0] == "run"
    for each in (spec, other):
        assert f"--extender-bind-address=:{PORT}" in container(each)["args"]
        variables = {item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"] for item in container(each)["env"]}
        assert variables == {"POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
        assert {"name": "extender", "containerPort": PORT} in container(each)["ports"]
    assert spec["template"]["spec"]["schedulerName"] == "default-scheduler"
    container(spec)["args"][0] = "run"
    for labels in (spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]):
        assert labels["app.kubernetes.io/component"] == "extender"
        labels["app.kubernetes.io/component"] = "scheduler"
    assert spec == other


def test_the_container_has_one_name_on_both_roads(road: dict[str, Object], both: dict[str, Object]) -> None:
    """The one that `kubectl logs -c` needs."""
    assert [container(each["spec"])["name"] for each in (road[DEPLOYMENT], both[BOTH_ROADS])] == [
        "neuron-scheduler"
    ] * 2


@pytest.mark.parametrize(
    ("where", "queue", "components"),
    [
        ("default-scheduler", False, ()),
        ("my-scheduler", True, ("extender",)),
        ("my-scheduler", True, ("extender", "extender-tls")),
    ],
)
def test_the_process_accepts_its_arguments(
    tmp_path: Path, *, where: str, queue: bool, components: tuple[str, ...]
) -> None:
    """The settings are the defaults, and the extender's port is open on every address."""
    items = rendered(customized(where, tmp_path / "manifests", *components))
    (name,) = (name for name in items if name.startswith("Deployment/"))
    arguments = [re.sub(r"/etc/[\w-]+", str(tmp_path), argument) for argument in container(items[name]["spec"])["args"]]
    for file in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / file).touch()
    (tmp_path / "config.yaml").write_text(items["ConfigMap/neuron-scheduler-config"]["data"]["config.yaml"])
    config = settings_from(cli.parse(arguments))
    assert (config.queue, config.extender_bind_address) == (queue, EXTENDER_ADDRESS)
    certificates = [config.extender_tls_cert_file, config.extender_tls_private_key_file, config.extender_client_ca_file]
    assert [Path(path).name for path in certificates] == (
        ["tls.crt", "tls.key", "ca.crt"] if "extender-tls" in components else ["", "", ""]
    )
    assert (config.leader_elect, config.leader_elect_resource_name, config.v) == (True, "my-scheduler", 2)


def deepcopied(item: Object) -> Object:
    """Return a copy that can be changed."""
    copy: Object = json.loads(json.dumps(item))
    return copy


def container(spec: Object) -> Object:
    """Return the only container of a Deployment's spec."""
    (found,) = spec["template"]["spec"]["containers"]
    only: Object = found
    return only


def test_the_service_selects_the_pods(road: dict[str, Object], both: dict[str, Object]) -> None:
    """On both roads: its labels are on the pods and its port is named in the container; so is the policies' port."""
    for items, name in ((road, DEPLOYMENT), (both, BOTH_ROADS)):
        template = items[name]["spec"]["template"]
        service = items[SERVICE]["spec"]
        assert service["selector"] == template["metadata"]["labels"]
        assert not service["selector"].items() <= AWS_LABELS.items(), "it does not find the pods of AWS's extension"
        assert service["ports"] == [{"name": "http", "port": PORT, "targetPort": "extender"}]
        assert items["NetworkPolicy/neuron-scheduler"]["spec"]["ingress"][-1] == {
            "ports": [{"port": PORT, "protocol": "TCP"}]
        }


@pytest.mark.parametrize(("where", "components"), [("default-scheduler", ()), ("my-scheduler", ("extender",))])
def test_the_port_for_some_addresses(tmp_path: Path, where: str, components: tuple[str, ...]) -> None:
    """With the patch of the page the port is open to kube-scheduler's addresses and to the other replicas only."""
    page = (ROOT / "docs" / "default-scheduler.md").read_text()
    (patch,) = re.findall(r"```yaml\n  (patches:\n.*?)```", page, re.DOTALL)
    folder = customized(where, tmp_path, *components)
    with (folder / "kustomization.yaml").open("a") as file:
        file.write(patch.replace("\n  ", "\n"))
    metrics, port = rendered(folder)["NetworkPolicy/neuron-scheduler"]["spec"]["ingress"]
    assert [peer.popitem()[0] for peer in port["from"]] == ["ipBlock", "podSelector"]
    assert [each["port"] for each in port["ports"]] == [PORT]
    assert PORT not in [each["port"] for each in metrics["ports"]]


def test_the_names_of_schedulers(road: dict[str, Object], both: dict[str, Object]) -> None:
    """A pod may name the schedulers that give it device ids, and no other."""
    lists = [items["ValidatingAdmissionPolicy/neuron-scheduler-name"]["spec"]["variables"] for items in (road, both)]
    assert [[variable["name"] for variable in variables] for variables in lists] == [["names"], ["names"]]
    assert lists[0][0]["expression"] == "['default-scheduler']"
    assert lists[1][0]["expression"] == "['my-scheduler', 'default-scheduler']"


@pytest.mark.parametrize(("where", "name"), [("default-scheduler", DEPLOYMENT), ("my-scheduler", BOTH_ROADS)])
def test_the_variant_for_kops(tmp_path: Path, where: str, name: str) -> None:
    """The node port is the one in the configuration, and the pods may run on nodes of the control plane only."""
    components = ["kops"] if where == "default-scheduler" else ["extender", "kops"]
    items = rendered(customized(where, tmp_path, *components))
    assert items[SERVICE]["spec"]["type"] == "NodePort"
    (port,) = items[SERVICE]["spec"]["ports"]
    assert port["nodePort"] == NODE_PORT
    assert entry()["urlPrefix"] == f"http://127.0.0.1:{NODE_PORT}"
    spec = items[name]["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "node-role.kubernetes.io/control-plane": ""}
    assert {toleration["key"] for toleration in spec["tolerations"]} == {
        "CriticalAddonsOnly",
        "node-role.kubernetes.io/control-plane",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
    assert "hostNetwork" not in spec


@pytest.mark.parametrize(("where", "name"), [("default-scheduler", DEPLOYMENT), ("my-scheduler", BOTH_ROADS)])
def test_the_variant_with_tls(tmp_path: Path, where: str, name: str) -> None:
    """Its files are in the Secret that is mounted, which the process may read; also beside secure metrics."""
    components = ["extender"] * (where == "my-scheduler") + ["extender-tls", "secure-metrics"]
    spec = rendered(customized(where, tmp_path, *components))[name]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(spec)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}
    assert mounts.keys() == volumes.keys() == {"config", "tls", "extender-tls"}
    assert volumes["extender-tls"]["secret"]["secretName"] == "neuron-scheduler-extender-tls"
    assert [argument for argument in container(spec)["args"] if argument.startswith("--extender-")] == [
        f"--extender-bind-address=:{PORT}",
        f"--extender-tls-cert-file={mounts['extender-tls']}/tls.crt",
        f"--extender-tls-private-key-file={mounts['extender-tls']}/tls.key",
        f"--extender-client-ca-file={mounts['extender-tls']}/ca.crt",
    ]
    context = spec["template"]["spec"]["securityContext"]
    assert context["fsGroup"] == context["runAsGroup"]


# -- the files for kube-scheduler --------------------------------------------------------------------------------------


def test_the_configuration_is_asked_about_every_pod_with_neuron() -> None:
    """It has all verbs and names, and no pod with Neuron is placed without us."""
    extender = entry()
    assert {item["name"] for item in extender["managedResources"]} == set(NEURON_NAMES)
    assert not any(item["ignoredByScheduler"] for item in extender["managedResources"])
    verbs = ("filter", "prioritize", "bind", "preempt")
    assert [extender[f"{verb}Verb"] for verb in verbs] == list(verbs)
    assert extender["ignorable"] is False
    assert configuration("scheduler-config")["percentageOfNodesToScore"] == 100


def test_tls_is_the_only_difference() -> None:
    """The configuration with TLS checks the Service's name, and is the other one otherwise."""
    plain, tls = configuration("scheduler-config"), configuration("scheduler-config-tls")
    (extender,) = tls["extenders"]
    assert extender.pop("tlsConfig")["serverName"] == SERVICE_NAME
    assert extender["enableHTTPS"] is True
    (expected,) = plain["extenders"]
    expected |= {"enableHTTPS": True, "urlPrefix": expected["urlPrefix"].replace("http:", "https:")}
    assert tls == plain


# -- on a real control plane -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    """Run an API server with controllers, on which manifests/default-scheduler is applied as a user does it."""
    async with run_control_plane(with_controller_manager=True) as plane:
        kubeconfig = plane.kubeconfig(plane.folder / "kubeconfig")
        for folder in ("manifests/lease-watch", "manifests/default-scheduler"):
            await anyio.to_thread.run_sync(kubectl, "apply", "-k", folder, "--kubeconfig", kubeconfig)
        yield plane


async def applied(plane: ControlPlane, folder: Path, *flags: str) -> str:
    """Apply a kustomization with kubectl; return what it prints."""
    apply = partial(kubectl, "apply", "-k", folder, *flags, "--kubeconfig", plane.folder / "kubeconfig")
    return await anyio.to_thread.run_sync(apply)


@pytest.mark.control_plane
@pytest.mark.parametrize(
    ("where", "components"),
    [
        ("default-scheduler", ()),
        ("default-scheduler", ("kops", "extender-tls", "secure-metrics")),
        ("my-scheduler", ("extender",)),
        ("my-scheduler", ("extender", "kops", "extender-tls", "secure-metrics")),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--server-side",)])
async def test_the_server_accepts_everything(
    plane: ControlPlane, tmp_path: Path, *, where: str, components: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    """A server-side dry run, by either kind of apply, finds no unknown field and no bad value."""
    folder = customized(where, tmp_path, *components)
    force = ("--force-conflicts",) if flags else ()
    output = await applied(plane, folder, *flags, *force, "--dry-run=server", "--validate=strict")
    assert "service/k8s-neuron-scheduler" in output


# Of the pods of the extension in AWS's Helm chart.
AWS_LABELS = {"app.kubernetes.io/name": "neuron-scheduler", "app.kubernetes.io/component": "k8s-neuron-scheduler"}


@pytest.mark.control_plane
async def test_the_commands_of_the_page(plane: ControlPlane, tmp_path: Path) -> None:
    """Those of docs/default-scheduler.md that need no image, beginning with AWS's Service in the cluster."""
    replace, install, address, look, example = run_by(f"{THIS}::test_the_commands_of_the_page")
    shell = reader_shell(tmp_path, plane.folder / "kubeconfig", road="default-scheduler")
    service = f"{NAMESPACE}/services/k8s-neuron-scheduler"
    instance = {"app.kubernetes.io/instance": "neuron-helm-chart"}
    await plane.admin.patch(service, {"spec": {"selector": AWS_LABELS | instance}})
    await shell.run(install)
    assert instance.items() <= (await plane.admin.get(service))["spec"]["selector"].items(), "as the page says"
    await shell.run(replace)
    await shell.run(install)
    ours = {"app.kubernetes.io/name": "neuron-scheduler", "app.kubernetes.io/component": "extender"}
    assert (await plane.admin.get(service))["spec"]["selector"] == ours
    assert ip_address(await shell.run(address)).version == 4
    await plane.admin.wait_until(f"{NAMESPACE}/pods", bool, labelSelector="app.kubernetes.io/component=extender")
    assert "k8s-neuron-scheduler-" in await shell.run(look)
    assert "pod/four-devices-on-trn1 created" in await shell.run(example)
    *_, remove = run_by("tests/end_to_end/test_readme.py::test_with_kubectl")
    await shell.run(remove)
    assert (await plane.admin.request("GET", service))[0] == 404
    assert "created" in await shell.run(install)


# -- with the real kube-scheduler --------------------------------------------------------------------------------------


def configured(plane: ControlPlane, folder: Path, fields: Object, *flags: str) -> Component:
    """Return a kube-scheduler with a configuration, which gets the kubeconfig as it does from kubeadm or kOps."""
    kubeconfig = str(plane.kubeconfig(folder / "admin.kubeconfig"))
    return kube_scheduler(fields | {"clientConnection": {"kubeconfig": kubeconfig}}, folder, *flags)


def with_certificates(folder: Path, fields: Object) -> Object:
    """Write the files that `tlsConfig` names to a folder, and return the configuration with these paths."""
    authority = Authority()
    (folder / "ca.crt").write_bytes(authority.pem)
    authority.issue("kube-scheduler").write(folder / "client.crt", folder / "client.key")
    (extender,) = fields["extenders"]
    for name in ("caFile", "certFile", "keyFile"):
        extender["tlsConfig"][name] = str(folder / Path(extender["tlsConfig"][name]).name)
    return fields


@pytest.mark.control_plane
@pytest.mark.parametrize("name", ["scheduler-config", "scheduler-config-tls"])
async def test_kube_scheduler_accepts_the_configuration(plane: ControlPlane, tmp_path: Path, name: str) -> None:
    """It starts without a warning about the file, and says that it has made the extender."""
    fields = configuration(name)
    if "tlsConfig" in fields["extenders"][0]:
        with_certificates(tmp_path, fields)
    scheduler = configured(plane, tmp_path, fields)
    async with scheduler.started():
        log = scheduler.log.read_text()
    assert '"Creating extender"' in log
    assert fields["extenders"][0]["urlPrefix"] in log
    assert not [line for line in log.splitlines() if "deprecated" in line.lower() or "unknown field" in line]


@pytest.mark.control_plane
async def test_a_step_of_ours_outweighs_all_plugins(plane: ControlPlane, tmp_path: Path) -> None:
    """By the weights that kube-scheduler itself completes the file with; a plugin without a weight counts as 1."""
    complete = tmp_path / "complete.yaml"
    scheduler = configured(plane, tmp_path, configuration("scheduler-config"), f"--write-config-to={complete}")
    await anyio.run_process(scheduler.argv)
    written = yaml.safe_load(complete.read_text())
    (profile,) = written["profiles"]
    plugins = {plugin["name"]: plugin.get("weight") or 1 for plugin in profile["plugins"]["multiPoint"]["enabled"]}
    assert plugins["TaintToleration"] == 3
    assert sum(plugins.values()) < 30
    assert PLUGIN_SCORE * sum(plugins.values()) < STEP * written["extenders"][0]["weight"]
    assert written["percentageOfNodesToScore"] == 100
