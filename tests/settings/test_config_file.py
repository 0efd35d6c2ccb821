"""A configuration file is read strictly, mistakes are reported with their paths, and flags override it."""

import functools
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from neuron_scheduler import cli
from neuron_scheduler.commands import run as run_command
from neuron_scheduler.settings import config_file
from neuron_scheduler.settings.arguments import config_and_file
from neuron_scheduler.settings.config import OF_A_PROFILE, Config, settings
from neuron_scheduler.settings.profile_config import ProfileConfig
from neuron_scheduler.settings.setting import duration
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ConfigurationError

OURS = "apiVersion: neuron-scheduler/v1\nkind: NeuronSchedulerConfiguration\n"
OLD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
# The ConfigMap my-scheduler-config of AWS's documentation ("Neuron Scheduler Extension", EKS).
AWS = (
    OLD
    + """
profiles: [{schedulerName: my-scheduler}]
extenders:
  - urlPrefix: 'http://k8s-neuron-scheduler.kube-system.svc.cluster.local:12345'
    filterVerb: filter
    bindVerb: bind
    enableHTTPS: false
    nodeCacheCapable: true
    managedResources:
      - {name: 'aws.amazon.com/neuron', ignoredByScheduler: false}
      - {name: 'aws.amazon.com/neuroncore', ignoredByScheduler: false}
    ignorable: false
leaderElection: {leaderElect: true, resourceNamespace: kube-system, resourceName: my-scheduler}
"""
)

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a configuration file and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return str(path)

    return write


def config_of(path: str, *flags: str) -> Config:
    """Return the configuration of `run --config` with flags."""
    return config_and_file(cli.parse(["run", f"--config={path}", *flags]))[0]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", Config(), id="nothing set"),
        pytest.param(
            "profiles: [{schedulerName: a}, {schedulerName: b, preferences: [SmallestBlock, ImageLocality]}]",
            Config(
                profiles=(
                    ProfileConfig(scheduler_name="a"),
                    ProfileConfig(scheduler_name="b", preferences=("SmallestBlock", "ImageLocality")),
                )
            ),
            id="two profiles, one with its own order",
        ),
        pytest.param(
            "profiles: [{schedulerName: a, preferences: []}]",
            Config(profiles=(ProfileConfig(scheduler_name="a", preferences=()),)),
            id="oldest node first",
        ),
        pytest.param(
            "profiles: [{schedulerName: a, volumeBindTimeout: 1m}, {schedulerName: b}]",
            Config(
                profiles=(
                    ProfileConfig(scheduler_name="a", volume_bind_timeout=60.0),
                    ProfileConfig(scheduler_name="b"),
                )
            ),
            id="a shorter time for the volumes of one scheduler",
        ),
        pytest.param(
            "leaderElection: {leaderElect: false, leaseDuration: 30s, renewDeadline: 1m, resourceName: x}",
            Config(
                leader_elect=False,
                leader_elect_lease_duration=30.0,
                leader_elect_renew_deadline=60.0,
                leader_elect_resource_name="x",
            ),
            id="Lease",
        ),
        pytest.param(
            "clientConnection: {qps: 50, burst: 7, master: 'http://x'}\npodMaxBackoffSeconds: 60\n"
            "verbosity: 4\nshutdownGracePeriod: 5s\nloggingFormat: json\nport: 0",
            Config(
                kube_api_qps=50.0,
                kube_api_burst=7,
                master="http://x",
                pod_max_backoff_seconds=60.0,
                v=4,
                shutdown_grace_period=5.0,
                logging_format="json",
                port=0,
            ),
            id="the rest",
        ),
    ],
)
def test_our_own_kind(write: Write, text: str, want: Config) -> None:
    """Each setting has the meaning of its flag; a missing one has the flag's default."""
    assert config_of(write(OURS + text)) == want


def test_every_setting_has_its_place(write: Write) -> None:
    """The file has each field of Config, in the form that its declaration says; those of a profile are in profiles."""
    defaults = {field.name: field.default for field in settings()}
    assert defaults.keys() - config_file.PATHS.keys() == set(OF_A_PROFILE)
    document: dict[str, Any] = {}
    for field in settings():
        if field.name in config_file.PATHS:
            *groups, last = config_file.PATHS[field.name].split(".")
            parent = functools.reduce(lambda parent, group: parent.setdefault(group, {}), groups, document)
            parent[last] = f"{field.default:g}s" if field.metadata["parse"] is duration else field.default
    file = config_file.read(write(OURS + yaml.safe_dump(document))).values
    assert file == {name: defaults[name] for name in config_file.PATHS}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("", "expected apiVersion: neuron-scheduler/v1 and kind: Neuron", id="empty"),
        pytest.param("- a", "expected apiVersion: neuron-scheduler/v1 and kind: Neuron", id="a list"),
        pytest.param("kind: Pod\napiVersion: v1", "apiVersion 'v1', kind 'Pod' is not supported; write", id="a pod"),
        pytest.param(
            OLD.replace("/v1", "/v1beta2"),
            "/v1beta2 is no longer supported, not by kube-scheduler either; write kubescheduler.config.k8s.io/v1$",
            id="too old",
        ),
        pytest.param("a: [", "did not find expected node content at line 2, column 1", id="no YAML"),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap", "this is a ConfigMap; write the text under its data", id="wrapped"
        ),
        pytest.param("a: &a [*a]", "apiVersion None, kind None is not supported", id="contains itself"),
        pytest.param(OURS + OURS, "line 3: duplicate key apiVersion", id="a key twice"),
        pytest.param(f"{OURS}---\n{OURS}", "expected a single document", id="two documents"),
        pytest.param(OURS + "leaderElecton: {}", "unknown field `leaderElecton`", id="misspelt"),
        pytest.param(
            OURS + "leaderElection: {leaseduration: 3s}",
            "unknown field `leaseduration` - at `leaderElection`",
            id="misspelt below",
        ),
        pytest.param(
            OURS + "leaderElection: {leaseDuration: 15}",
            "15 is not a duration; write 15s, 1m30s or 500ms - at `leaderElection.leaseDuration`",
            id="no unit",
        ),
        pytest.param(OURS + "verbosity: high", "Expected `int`, got `str` - at `verbosity`", id="no number"),
        pytest.param(OURS + "port: true", "Expected `int`, got `bool` - at `port`", id="no number but true"),
        pytest.param(
            OURS + "profiles: [{schedulerName: a}, {preferences: []}]",
            r"Object missing required field `schedulerName` - at `profiles\[1\]`",
            id="no scheduler name",
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: a, preferences: [ImageLocality, SmalestBlock]}]",
            r"no preference 'SmalestBlock'; did you mean SmallestBlock\? - at `profiles\[0\].preferences\[1\]`",
            id="misspelt preference",
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: a, preferences: [zzz]}]",
            "there is no preference 'zzz'; there are AvoidRejectingNodes, .*LeastAllocated",
            id="unknown preference",
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: a, preferences: [ImageLocality, ImageLocality]}]",
            r"duplicate preference 'ImageLocality'; list each preference once - at `profiles\[0\]`",
            id="preference twice",
        ),
        pytest.param(OURS + "profiles: []", "config.yaml: there is no profile: name at least one", id="no profile"),
        pytest.param(
            OURS + "profiles: [{schedulerName: a}, {schedulerName: a}]",
            "config.yaml: schedulerName 'a' has more than one profile; keep one of them",
            id="one name twice",
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: A}]", "config.yaml: schedulerName is 'A'; it must be", id="no such name"
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: a, volumeBindTimeout: 25h}]",
            "config.yaml: volumeBindTimeout of 'a' is 90000s; it must be 0s to 24h",
            id="a day and more for volumes",
        ),
        pytest.param(
            OLD + "profiles: [{schedulerName: a, pluginConfig: [{name: VolumeBinding, args: {bindTimeout: 1}}]}]",
            r"unknown field `bindTimeout` - at `profiles\[0\].pluginConfig\[0\].args`",
            id="old kind, misspelt argument",
        ),
        pytest.param(
            OLD
            + "profiles: [{schedulerName: a, pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: -1}}]}]",
            r"Expected `int` >= 0 - at `profiles\[0\].pluginConfig\[0\].args.bindTimeoutSeconds`",
            id="old kind, no time at all",
        ),
        pytest.param(OURS + "port: 70000", "config.yaml: port is 70000; it must be 0 to 65535", id="out of range"),
        pytest.param(
            OURS + "leaderElection: {renewDeadline: 15s}",
            r"config.yaml: leaderElection.renewDeadline \(15s\) must be below --leader-elect-lease-duration \(15s\)",
            id="contradicts a default",
        ),
        pytest.param(
            OURS + "clientConnection: {kubeconfig: /no/such}",
            "config.yaml: clientConnection.kubeconfig: there is no file /no/such",
            id="no file",
        ),
        pytest.param(OLD, r"no profiles.*; write profiles: \[\{schedulerName: my-s", id="old kind: whose pods?"),
        pytest.param(OLD + "profiles:", "config.yaml: there are no profiles", id="old kind, null"),
        pytest.param(OLD + "profiles: []", "config.yaml: there are no profiles", id="old kind, an empty list"),
        pytest.param(OLD + "profiles: {}", "Expected `array`, got `object`", id="old kind, no list"),
        pytest.param(
            OLD + "profiles: [{schedulerName: a}]\nverbosity: 4",
            "unknown field `verbosity`",
            id="old kind, new field",
        ),
        pytest.param(
            OLD + "profiles: [{schedulerName: a, plugin: {}}]",
            r"unknown field `plugin` - at `profiles\[0\]`",
            id="old kind, unknown to kube-scheduler as well",
        ),
    ],
)
def test_mistakes(write: Write, text: str, complaint: str) -> None:
    """Each mistake is one sentence with the file and the path in it."""
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        config_of(write(text))
    assert "config.yaml: " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "flags", "changed"),
    [
        pytest.param("verbosity: 4", ["--v=2"], {"v": 2}, id="even back to the default"),
        pytest.param(
            "leaderElection: {renewDeadline: 15s}",
            ["--leader-elect-lease-duration=30s"],
            {"leader_elect_renew_deadline": 15.0, "leader_elect_lease_duration": 30.0},
            id="together they make sense",
        ),
        pytest.param(
            "profiles: [{schedulerName: a, preferences: []}]",
            ["--scheduler-name=b", "--volume-bind-timeout=30s"],
            {
                "scheduler_name": "b",
                "volume_bind_timeout": 30.0,
                "profiles": (ProfileConfig(scheduler_name="b", preferences=(), volume_bind_timeout=30.0),),
            },
            id="the only profile",
        ),
        pytest.param(
            "profiles: [{schedulerName: a, volumeBindTimeout: 1m}, {schedulerName: b}]",
            ["--volume-bind-timeout=600s"],
            {"profiles": (ProfileConfig(scheduler_name="a"), ProfileConfig(scheduler_name="b"))},
            id="all profiles",
        ),
        pytest.param(
            "profiles: [{schedulerName: a, volumeBindTimeout: 1m}]",
            ["--volume-bind-timeout=30s"],
            {
                "volume_bind_timeout": 30.0,
                "profiles": (ProfileConfig(scheduler_name="a", volume_bind_timeout=30.0),),
            },
            id="time for volumes",
        ),
    ],
)
def test_flags_override_the_file(write: Write, text: str, flags: list[str], changed: dict[str, Any]) -> None:
    """A flag overrides the file's value; the other values stay."""
    assert config_of(write(OURS + text), *flags) == attrs.evolve(Config(), **changed)


def test_a_flag_cannot_name_several_schedulers(write: Write) -> None:
    """One name for two profiles is a contradiction, not a guess."""
    path = write(OURS + "profiles: [{schedulerName: a}, {schedulerName: b}]")
    with pytest.raises(ConfigurationError, match=r"--scheduler-name names one scheduler, .* has profiles for 2"):
        config_of(path, "--scheduler-name=c")


def test_the_error_for_a_flag_names_the_flag(write: Write) -> None:
    """The error for a wrong flag names the flag, not the file."""
    with pytest.raises(ConfigurationError, match=r"^--port is 70000"):
        config_of(write(OURS + "verbosity: 4\nport: 1"), "--port=70000")


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    """The error for a missing file, or one that is not text, has its path."""
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"--config: {path} cannot be read"):
        config_of(str(path))


def test_the_config_of_awss_my_scheduler_is_accepted(write: Write) -> None:
    """Its names and its Lease are used; only its extender, which this scheduler replaces, is ignored."""
    path = write(AWS)
    assert config_of(path) == Config()
    assert config_file.read(path).ignored == ("extenders",)


def test_the_example_of_the_documentation(write: Write) -> None:
    """The example in docs/settings.md is valid."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    (example,) = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if text.startswith(OURS)]
    assert [profile.scheduler_name for profile in config_of(write(example)).profiles] == [
        "my-scheduler",
        "my-batch-scheduler",
    ]


def test_each_ignored_field_is_named(write: Write) -> None:
    """Ignored fields are listed with their paths, except for the lock `leases`, which is ours too."""
    file = config_file.read(
        write(
            OLD
            + "parallelism: 16\nenableProfiling: false\nenableContentionProfiling: false\nextenders: []\n"
            + "percentageOfNodesToScore: 50\ndelayCacheUntilActive: true\n"
            + "leaderElection: {resourceLock: leases, leaseDuration: 30s}\n"
            + "clientConnection: {kubeconfig: /k, qps: 50, burst: 100, contentType: x, acceptContentTypes: y}\n"
            + "podInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 20\n"
            + "profiles: [{schedulerName: a, plugins: {}}, {schedulerName: b,"
            + " percentageOfNodesToScore: 0, pluginConfig: [{name: DefaultPreemption, args: {}},"
            + " {name: VolumeBinding, args: {kind: VolumeBindingArgs, bindTimeoutSeconds: 60, shape: [{score: 1}]}}"
            + "]}]\n"
        )
    )
    assert sorted(file.ignored) == [
        "clientConnection.acceptContentTypes",
        "clientConnection.contentType",
        "delayCacheUntilActive",
        "enableContentionProfiling",
        "enableProfiling",
        "extenders",
        "parallelism",
        "percentageOfNodesToScore",
        "profiles[0].plugins",
        "profiles[1].percentageOfNodesToScore",
        "profiles[1].pluginConfig[0] (DefaultPreemption)",
        "profiles[1].pluginConfig[1].args.shape",
    ]
    assert file.values == {
        "kubeconfig": "/k",
        "kube_api_qps": 50.0,
        "kube_api_burst": 100,
        "leader_elect_lease_duration": 30.0,
        "pod_initial_backoff_seconds": 2.0,
        "pod_max_backoff_seconds": 20.0,
        "profiles": (
            ProfileConfig(scheduler_name="a"),
            ProfileConfig(scheduler_name="b", volume_bind_timeout=60.0),
        ),
    }


def test_the_warning_is_one_line(
    write: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning at the start lists all ignored fields."""
    monkeypatch.setattr(logs, "configure", lambda **_: None)
    monkeypatch.setattr(run_command, "_run", lambda _: 0)
    assert cli.main(["run", f"--config={write(AWS + 'parallelism: 4')}"]) == 0
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.msg == "Fields of the configuration file have no effect here"
    assert getattr(record, "pairs", {})["fields"] == ["parallelism", "extenders"]
