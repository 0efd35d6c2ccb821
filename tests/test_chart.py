"""`helm template manifests/chart`: the same objects as with kustomize, and mistakes are refused in sentences."""

import itertools
import tarfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path

import attrs
import pytest
import yaml

from neuron_scheduler import __version__, cli
from neuron_scheduler.scheduling.plugins.registry import PREFERENCES
from neuron_scheduler.settings.arguments import settings_from
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profile_config import CapacityRequests
from tests.control_plane.rest import Object
from tests.support.helm import CHART, Helm, values
from tests.support.kustomize import ROOT, by_name, customized, rendered

pytestmark = pytest.mark.control_plane  # the built helm and kubectl, without a server

IMAGE = "--set=image.repository=neuron-scheduler"
ON = ["--set", "scheduler.enabled=true", IMAGE]
HELMS_LABELS = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart")
SECRET_FILES = ("tls.crt", "tls.key", "ca.crt")


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Return a Helm without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


def without_helms_own(chart: Mapping[str, Object]) -> dict[str, Object]:
    """
    Return the objects of the chart without what only Helm needs.

    The labels of every chart; the annotation that keeps the lease-watch, a kustomization of its own, in the cluster;
    and the checksum in the pods' annotations, with which an upgrade restarts them, where kustomize has the hash in the
    ConfigMap's name.
    """
    items = deepcopy(dict(chart))
    for name, item in items.items():
        for label in HELMS_LABELS:
            assert item["metadata"]["labels"].pop(label)
        if name.endswith("/neuron-scheduler-lease-watch"):
            assert item["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        if item["kind"] == "Deployment":
            assert item["spec"]["template"]["metadata"]["annotations"].pop("checksum/config")
    return items


def settings_of(items: Mapping[str, Object], folder: Path) -> Config:
    """Return the settings of the process in the pod: its arguments, with every file where it is mounted."""
    (deployment,) = (item for item in items.values() if item["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    arguments: list[str] = container["args"]
    for mount in container["volumeMounts"]:
        mounted = folder / mount["name"]
        mounted.mkdir(exist_ok=True)
        for name in SECRET_FILES:
            (mounted / name).touch()
        arguments = [argument.replace(f"={mount['mountPath']}/", f"={mounted}/") for argument in arguments]
    (folder / "config" / "config.yaml").write_text(config_map(items)["data"]["config.yaml"])
    config = settings_from(cli.parse(arguments))
    in_full = [
        attrs.evolve(profile, preferences=tuple(PREFERENCES)) if profile.preferences is None else profile
        for profile in config.profiles
    ]
    return attrs.evolve(config, profiles=tuple(in_full))


def config_map(items: Mapping[str, Object]) -> Object:
    """Return the object with the configuration file."""
    return items["ConfigMap/neuron-scheduler-config"]


ROADS = {
    "custom": ("my-scheduler", [], {}),
    "default": ("default-scheduler", [], {"customScheduler__enabled": False, "defaultScheduler__enabled": True}),
    "both": ("my-scheduler", ["extender"], {"defaultScheduler__enabled": True}),
}
FOR_KUBE_SCHEDULER = {"kops": "kops", "extenderTls": "extender-tls"}
COMPONENTS = {
    "requireScheduler": "require-scheduler",
    "setScheduler": "set-scheduler",
    "secureMetrics": "secure-metrics",
}
ON_TOP = {"questions": "questions", "page": "page", "capacityRequests": "capacity-requests", "claims": "claims"}
"""They add flags at the end and objects of their own, so they are combined with all the others or with none."""


def choices() -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield every road with every set of components that has a meaning there."""
    for road in ROADS:
        able = [*COMPONENTS] if road == "custom" else [*FOR_KUBE_SCHEDULER, *COMPONENTS]
        if road == "default":
            able.remove("setScheduler")
        for values_of in itertools.product([False, True], repeat=len(able)):
            yield road, dict(zip(able, values_of, strict=True))
        for rest in (False, True):
            for page in (False, True):
                yield road, dict.fromkeys(able, rest) | {"questions": True, "page": page}
            for name in ("capacityRequests", "claims") if road != "default" else ():
                yield road, dict.fromkeys(able, rest) | {name: True}


def few_choices() -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield choices in which every two of road and components meet in each way in which they can."""
    every = [*choices()]

    def meetings(choice: tuple[str, dict[str, bool]]) -> set[object]:
        road, chosen = choice
        return {*itertools.combinations([road, *sorted(chosen.items())], 2)}

    left = set[object]().union(*map(meetings, every))
    while left:
        best = max(every, key=lambda choice: len(meetings(choice) & left))
        yield best
        left -= meetings(best)


def name_of(choice: object) -> str:
    """Return a road, or the components that are chosen."""
    return choice if isinstance(choice, str) else "+".join(k for k, v in choice.items() if v) or "plain"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("road", "chosen"), [*few_choices()], ids=name_of)
def test_the_chart_and_the_kustomization_are_the_same_objects(
    helm: Helm, tmp_path: Path, road: str, chosen: Mapping[str, bool]
) -> None:
    """
    For each pair of choices, except for what only Helm needs.

    The configuration file is compared as the process reads it: one has comments, and the other writes out defaults.
    """
    folder, needed, switches = ROADS[road]
    components = [
        *needed,
        *(name for key, name in (FOR_KUBE_SCHEDULER | COMPONENTS | ON_TOP).items() if chosen.get(key)),
    ]
    kustomization = customized(folder, tmp_path, *components)
    if chosen.get("capacityRequests"):
        config = kustomization / folder / "config.yaml"  # the second step of the component
        config.write_text(config.read_text().replace("# capacityRequests: {}", "capacityRequests: {}"))
    expected = rendered(kustomization) | rendered("manifests/lease-watch")
    flags = values(**{f"scheduler__{name}": value for name, value in switches.items()}, components=chosen)
    actual = without_helms_own(helm.rendered(*ON, *flags))
    assert settings_of(actual, tmp_path) == settings_of(expected, tmp_path)
    asking = CapacityRequests() if chosen.get("capacityRequests") else None
    assert [profile.capacity_requests for profile in settings_of(actual, tmp_path).profiles] == [asking]
    assert config_map(actual).pop("data").keys() == config_map(expected).pop("data").keys()
    assert actual == expected


def test_no_image(helm: Helm) -> None:
    """A name without a registry would be that of somebody's image on Docker Hub, so there is no default."""
    complaint = helm.refusal("template", "neuron-scheduler", CHART, "--set=scheduler.enabled=true")
    assert "image.repository is not set, and there is no published image" in complaint


def test_a_page_without_answers(helm: Helm) -> None:
    """The page shows answers, so it is refused without them."""
    complaint = helm.refusal("template", "neuron-scheduler", CHART, *ON, "--set=components.page=true")
    assert "components.page needs components.questions=true" in complaint


@pytest.mark.parametrize("name", ["capacityRequests", "claims"])
def test_what_kube_scheduler_s_pods_do_not_get(helm: Helm, name: str) -> None:
    """Machines are asked for, and claims written, for pods of our own queue; without one the component is refused."""
    flags = values(
        scheduler__customScheduler__enabled=False,
        scheduler__defaultScheduler__enabled=True,
        **{f"components__{name}": True},
    )
    complaint = helm.refusal("template", "neuron-scheduler", CHART, *ON, *flags)
    assert f"components.{name} needs scheduler.customScheduler.enabled=true" in complaint


def test_a_profile_may_limit_the_machines(helm: Helm, tmp_path: Path) -> None:
    """Each profile asks with the component; what one sets stays. Without the component that is refused."""
    profiles = [{"schedulerName": "a", "capacityRequests": {"maxMachines": 1, "wait": "5m"}}, {"schedulerName": "b"}]
    flags = values(config__profiles=profiles, components__capacityRequests=True)
    config = settings_of(helm.rendered(*ON, *flags), tmp_path)
    assert [profile.capacity_requests for profile in config.profiles] == [
        CapacityRequests(max_machines=1, wait=300.0),
        CapacityRequests(),
    ]
    complaint = helm.refusal("template", "neuron-scheduler", CHART, *ON, *values(config__profiles=profiles))
    assert "capacityRequests of the profile a needs components.capacityRequests=true" in complaint


SWITCHES = [
    "scheduler.enabled",
    "scheduler.customScheduler.enabled",
    "scheduler.defaultScheduler.enabled",
    "npd.enabled",
    "components.setScheduler",
]


SETTINGS = [setting for setting in itertools.product([False, True], repeat=len(SWITCHES)) if not setting[3]]


@pytest.mark.parametrize("setting", [*SETTINGS, (True, True, True, True, True)])
def test_every_combination_of_the_switches(helm: Helm, setting: Sequence[bool]) -> None:
    """Each one renders objects, or nothing where the scheduler is off, or is refused in a sentence."""
    chosen = dict(zip(SWITCHES, setting, strict=True))
    enabled, custom, default, npd, sets = setting
    flags = [IMAGE, *(f"--set={name}={str(value).lower()}" for name, value in chosen.items())]
    expected = ""
    if npd:
        expected = "this chart has no node problem detector"
    elif enabled and not (custom or default):
        expected = "are both false: set one of them to true"
    elif enabled and sets and not custom:
        expected = "components.setScheduler needs scheduler.customScheduler.enabled=true"
    if expected:
        assert expected in helm.refusal("template", "neuron-scheduler", CHART, *flags)
    elif enabled:
        items = helm.rendered(*flags)
        assert f"Deployment/{'my-scheduler' if custom else 'k8s-neuron-scheduler'}" in items
        assert ("Service/k8s-neuron-scheduler" in items) is default
        assert sum(name.startswith("Deployment/") for name in items) == 1
    else:
        assert helm.rendered(*flags) == {}
    assert "1 chart(s) linted, 0 chart(s) failed" in helm.run("lint", "--strict", CHART, *flags) or expected


def test_the_defaults_are_those_of_aws_with_nothing_to_detect_problems() -> None:
    """The switches of AWS's chart, where only `npd.enabled` has another default: we have no such detector."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert defaults["scheduler"] == {
        "enabled": False,
        "customScheduler": {"enabled": True, "fullnameOverride": "my-scheduler"},
        "defaultScheduler": {"enabled": False},
    }
    assert defaults["npd"] == {"enabled": False}


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("scheduler.enable=true", "at '/scheduler': additional properties 'enable' not allowed"),
        ("devicePlugin.enabled=false", "at '': additional properties 'devicePlugin' not allowed"),
        ("scheduler.enabled=yes", "at '/scheduler/enabled': got string, want boolean"),
        ("config.verbose=4", "at '/config': additional properties 'verbose' not allowed"),
        ("config.verbosity=four", "at '/config/verbosity': got string, want integer"),
        ("config.loggingFormat=xml", "at '/config/loggingFormat': value must be one of 'text', 'json'"),
        ("config.leaderElection.resourceName=other", "additional properties 'resourceName' not allowed"),
        ("config.leaderElection.leaseDuration=15", "at '/config/leaderElection/leaseDuration': got number"),
        ("config.profiles[0].schedulerName=My", "at '/config/profiles/0/schedulerName': 'My' does not match pattern"),
        ("config.profiles[0].preferences[0]=Smallest", "at '/config/profiles/0': missing property 'schedulerName'"),
        ("replicas=-1", "at '/replicas': minimum: got -1, want 0"),
        ("allocationWriters[0]='", "at '/allocationWriters/0': '\\'' does not match pattern"),
    ],
)
def test_a_mistake_is_refused(helm: Helm, flag: str, complaint: str) -> None:
    """A misspelt value, or one of the wrong form, is an error with its path."""
    assert complaint in helm.refusal("template", "neuron-scheduler", CHART, "--set", flag)


def test_a_release_with_the_name_of_awss_is_refused(helm: Helm) -> None:
    """Upgrading AWS's release to this chart would remove its device plugin."""
    refusal = helm.refusal("template", "neuron-helm-chart", CHART, *ON)
    assert "would delete its Neuron device plugin: name this release neuron-scheduler" in refusal


def test_an_old_cluster_is_refused(helm: Helm) -> None:
    """The README's versions, and the newer ones that claims and setting the scheduler's name need; EKS has suffixes."""
    flags: tuple[str | Path, ...] = ("template", "neuron-scheduler", CHART, *ON, "--kube-version")
    assert helm.run(*flags, "v1.33.5-eks-3025e55")
    assert "chart requires kubeVersion: >=1.33.0-0" in helm.refusal(*flags, "v1.32.9")
    sets = ("--set", "components.setScheduler=true")
    assert helm.run(*flags, "v1.36.0-eks-1", *sets)
    assert "needs Kubernetes 1.36 or newer; this is v1.35.0" in helm.refusal(*flags, "v1.35.0", *sets)
    claims = ("--set", "components.claims=true")
    assert helm.run(*flags, "v1.34.1-eks-1", *claims)
    assert "needs Kubernetes 1.34 or newer; this is v1.33.5" in helm.refusal(*flags, "v1.33.5", *claims)


def test_the_name_of_aws_users_is_that_of_the_deployment_and_of_the_scheduler(helm: Helm, tmp_path: Path) -> None:
    """As in AWS's chart, except for the Lease and for what has our own name."""
    flags = (*ON, "--set", "scheduler.customScheduler.fullnameOverride=neuron-sched")
    items, usual = helm.rendered(*flags), helm.rendered(*ON)
    assert items.keys() - usual.keys() == {"Deployment/neuron-sched"}
    config = settings_of(items, tmp_path)
    assert [profile.scheduler_name for profile in config.profiles] == ["neuron-sched"]
    assert config.leader_elect_resource_name == "my-scheduler"
    assert names_in(items) == "['neuron-sched']"
    profiles = values(config__profiles=[{"schedulerName": "a"}, {"schedulerName": "b"}], components__setScheduler=True)
    with_profiles = helm.rendered(*flags, *profiles)
    assert [profile.scheduler_name for profile in settings_of(with_profiles, tmp_path).profiles] == ["a", "b"]
    assert names_in(with_profiles) == "['a', 'b']"
    assert "Deployment/neuron-sched" in with_profiles
    (mutation,) = with_profiles["MutatingAdmissionPolicy/neuron-scheduler-name"]["spec"]["mutations"]
    assert "schedulerName: 'a'" in mutation["applyConfiguration"]["expression"], "a name that is served"


def names_in(items: Mapping[str, Object]) -> str:
    """Return the scheduler names that a pod with Neuron may have."""
    (names,) = items["ValidatingAdmissionPolicy/neuron-scheduler-name"]["spec"]["variables"]
    return str(names["expression"])


def test_values_reach_their_objects(helm: Helm, tmp_path: Path) -> None:
    """One value of each kind, `false` and 0 too, which merging may lose."""
    items = helm.rendered(
        *ON,
        *values(
            image={"tag": "v9", "pullPolicy": "Always", "pullSecrets": [{"name": "registry"}]},
            replicas=1,
            resources={"limits": {"memory": "4Gi"}},
            nodeSelector={"a": "b"},
            podAnnotations={"c": "d"},
            affinity={"podAntiAffinity": {}},
            config__verbosity=0,
            config__loggingFormat="json",
            config__allocateFence=False,
            config__clientConnection={"qps": 0.5},
            config__leaderElection__leaseDuration="20s",
            allocationWriters=["one", "two"],
            otherSchedulerNames=["other"],
            networkPolicy__namespaces=["scrapers"],
        ),
    )
    template = items["Deployment/my-scheduler"]["spec"]["template"]
    spec, (container,) = template["spec"], template["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("neuron-scheduler:v9", "Always")
    assert container["resources"]["limits"] == {"memory": "4Gi"}
    assert container["resources"]["requests"] == {"cpu": "250m", "memory": "256Mi"}
    assert (spec["imagePullSecrets"], spec["affinity"]) == ([{"name": "registry"}], {"podAntiAffinity": {}})
    assert spec["nodeSelector"] == {"a": "b", "kubernetes.io/os": "linux"}
    assert template["metadata"]["annotations"]["c"] == "d"
    assert items["Deployment/my-scheduler"]["spec"]["replicas"] == 1
    config = settings_of(items, tmp_path)
    assert (config.v, config.logging_format, config.allocate_fence) == (0, "json", False)
    assert config.kube_api_qps == 0.5
    assert (config.leader_elect_lease_duration, config.leader_elect_renew_deadline) == (20, 10)
    variables = items["ValidatingAdmissionPolicy/neuron-scheduler-allocations"]["spec"]["variables"]
    assert variables[0] == {"name": "writers", "expression": "['one', 'two']"}
    assert names_in(items) == "['my-scheduler', 'other']"
    peers = items["NetworkPolicy/neuron-scheduler"]["spec"]["ingress"][0]["from"]
    assert peers[1]["namespaceSelector"]["matchExpressions"][0]["values"] == ["scrapers"]


@pytest.mark.parametrize(
    ("road", "component"), [("custom", "scheduler"), ("both", "scheduler"), ("default", "extender")]
)
def test_the_selector_of_a_deployment_never_changes(helm: Helm, road: str, component: str) -> None:
    """Kubernetes refuses to change it, so a new version with another one could not be installed by an upgrade."""
    flags = values(**{f"scheduler__{name}": value for name, value in ROADS[road][2].items()})
    (deployment,) = (item for item in helm.rendered(*ON, *flags).values() if item["kind"] == "Deployment")
    labels = {"app.kubernetes.io/name": "neuron-scheduler", "app.kubernetes.io/component": component}
    assert deployment["spec"]["selector"] == {"matchLabels": labels}


@pytest.mark.parametrize(("secure", "port", "scheme"), [("false", "http", None), ("true", "https", "https")])
def test_the_pod_monitor_selects_the_pods_and_their_port(
    helm: Helm, secure: str, port: str, scheme: str | None
) -> None:
    """Prometheus's operator finds the port that has the metrics."""
    flags = ("--set", "podMonitor.enabled=true", "--set", f"components.secureMetrics={secure}")
    more = values(podMonitor__labels={"release": "prometheus"}, podMonitor__endpoint={"honorLabels": True})
    items = helm.rendered(*ON, *flags, *more)
    monitor = items["PodMonitor/neuron-scheduler"]
    template = items["Deployment/my-scheduler"]["spec"]["template"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint.get("scheme"), endpoint["honorLabels"]) == (port, scheme, True)
    assert port in {port["name"] for port in template["spec"]["containers"][0]["ports"]}


def test_the_monitoring_is_that_of_the_folder(helm: Helm) -> None:
    """The dashboard, the alerts and the PodMonitor are the same objects as with kustomize."""
    flags = [f"--set={value}.enabled=true" for value in ("podMonitor", "prometheusRule", "dashboard")]
    usual, chart = helm.rendered(*ON), without_helms_own(helm.rendered(*ON, *flags))
    assert {name: chart[name] for name in chart.keys() - usual.keys()} == rendered("manifests/monitoring")


# -- the package -------------------------------------------------------------------------------------------------------


def test_the_chart_has_the_projects_version(helm: Helm, tmp_path: Path) -> None:
    """In Chart.yaml, in the image's tag, and in the name of the package, which can be installed too."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"] == __version__
    helm.run("package", CHART, "--destination", tmp_path)
    package = tmp_path / f"neuron-scheduler-{__version__}.tgz"
    with tarfile.open(package) as archive:
        packed = {name.removeprefix("neuron-scheduler/") for name in archive.getnames()}
    assert packed == {str(path.relative_to(CHART)) for path in CHART.rglob("*") if path.is_file()} - {".helmignore"} | (
        {".helmignore"} & packed
    )
    assert by_name(helm.run("template", "neuron-scheduler", package, *ON)) == helm.rendered(*ON)


def notes(helm: Helm, *flags: str) -> str:
    """Return what Helm prints after an installation."""
    dry: tuple[str | Path, ...] = (
        "install",
        "neuron-scheduler",
        CHART,
        "--namespace",
        "here",
        "--dry-run=client",
        *flags,
    )
    return helm.run(*dry).partition("NOTES:\n")[2]


def test_the_notes_say_what_to_do_next(helm: Helm) -> None:
    """How to verify, which name the pods need, and what stays; if nothing is installed, that."""
    assert "scheduler.enabled=false: nothing is installed" in notes(helm)
    custom = notes(helm, *ON)
    assert "kubectl rollout status --namespace kube-system deployment/my-scheduler" in custom
    assert 'binds:\n\n  "Successfully bound pod to node"\n' in custom
    assert "Finished executing Bind Request" not in custom
    assert "spec.schedulerName: my-scheduler\n" in custom
    assert "helm uninstall neuron-scheduler --namespace here" in custom
    renamed = notes(helm, *ON, "--set", "scheduler.customScheduler.fullnameOverride=other")
    assert "deployment/other" in renamed
    assert "spec.schedulerName: other\n" in renamed


@pytest.mark.parametrize("road", ["default", "both"])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("kops", [False, True])
def test_the_notes_have_the_configuration_of_kube_scheduler(helm: Helm, road: str, *, tls: bool, kops: bool) -> None:
    """It is that of manifests/default-scheduler, with the address that the components give the extender."""
    components = {"extenderTls": tls, "kops": kops}
    flags = values(**{f"scheduler__{name}": value for name, value in ROADS[road][2].items()}, components=components)
    printed = notes(helm, *ON, *flags)
    assert '"Finished executing Bind Request..."' in printed
    assert ("A pod chooses the scheduler" in printed) is (road == "both")
    lines = printed.partition("can be added:\n")[2].splitlines()
    configuration = yaml.safe_load("\n".join(line for line in lines if line.startswith("  ") or not line))
    file = ROOT / "manifests" / "default-scheduler" / f"scheduler-config{'-tls' * tls}.yaml"
    expected = yaml.safe_load(file.read_text())
    if not kops:
        (extender,) = expected["extenders"]
        extender["urlPrefix"] = extender["urlPrefix"].replace("127.0.0.1:32700", "CLUSTER_IP:12345")
        assert "CLUSTER_IP: kubectl get service" in printed
    assert configuration == expected
