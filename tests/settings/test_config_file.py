"""A configuration file is read strictly, mistakes are reported with their paths, and flags override it."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from neuron_scheduler import cli
from neuron_scheduler.model.wording import camel
from neuron_scheduler.settings import config_file
from neuron_scheduler.settings.arguments import settings_from
from neuron_scheduler.settings.config import OF_A_PROFILE, Config, settings
from neuron_scheduler.settings.profile_config import ProfileConfig
from neuron_scheduler.settings.setting import duration
from neuron_scheduler.telemetry.errors import ConfigurationError

OURS = "apiVersion: neuron-scheduler/v1\nkind: NeuronSchedulerConfiguration\n"


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
    return settings_from(cli.parse(["run", f"--config={path}", *flags]))


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


def test_the_names_are_those_of_the_page() -> None:
    """A reader finds each field by the rule of docs/settings.md, with the prefixes and exceptions that it lists."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text().partition("A field is its flag")[2]
    groups = dict(re.findall(r"`([a-z-]+)-` (?:are )?in `(\w+)`", page))
    irregular = {
        "leader_elect": "leaderElection.leaderElect",
        "kubeconfig": "clientConnection.kubeconfig",
        "master": "clientConnection.master",
        "extender_client_ca_file": "extender.clientCAFile",
        "v": "verbosity",
    }
    assert all(f"`{path}`" in page or f"`{name}`" in page for name, path in irregular.items())
    for name, path in config_file.PATHS.items():
        prefix = next((each for each in groups if name.startswith(f"{each.replace('-', '_')}_")), "")
        rest = camel(name[len(prefix) + 1 :] if prefix else name)
        assert path == irregular.get(name, f"{groups[prefix]}.{rest}" if prefix else rest)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("", "apiVersion None, kind None is not supported; write neuron-scheduler/v1", id="empty"),
        pytest.param("- a", "apiVersion None, kind None is not supported", id="a list"),
        pytest.param("kind: Pod\napiVersion: v1", "apiVersion 'v1', kind 'Pod' is not supported; write", id="a pod"),
        pytest.param(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration",
            r"is not supported; write neuron-scheduler/v1, NeuronSchedulerConfiguration \(docs/settings.md\)$",
            id="kube-scheduler's",
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
            "unknown field `leaderElection.leaseduration`",
            id="misspelt below",
        ),
        pytest.param(
            OURS + "leaderElection: {leaseDuration: 15}",
            "`leaderElection.leaseDuration`: '15' is not a duration; write 15s, 1m30s or 500ms",
            id="no unit",
        ),
        pytest.param(OURS + "verbosity: high", "`verbosity`: 'high' is not a number", id="no number"),
        pytest.param(OURS + "port: true", "`port`: 'True' is not a number", id="no number but true"),
        pytest.param(
            OURS + "leaderElection:", "`leaderElection` must have fields, and it is None", id="an empty group"
        ),
        pytest.param(OURS + "tlsCertFile: 5", "`tlsCertFile`: 5 is not a text", id="a number where a text belongs"),
        pytest.param(
            OURS + "profiles: [{schedulerName: a}, {preferences: []}]",
            r"`profiles\[1\]` has no schedulerName",
            id="no scheduler name",
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: a, preferences: [ImageLocality, SmalestBlock]}]",
            r"`profiles\[0\].preferences\[1\]`: there is no preference 'SmalestBlock'; did you mean SmallestBlock\?",
            id="misspelt preference",
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: a, preferences: [zzz]}]",
            "there is no preference 'zzz'; there are AvoidRejectingNodes, .*LeastAllocated",
            id="unknown preference",
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: a, preferences: [ImageLocality, ImageLocality]}]",
            r"`profiles\[0\].preferences`: duplicate preference 'ImageLocality'; list each preference once",
            id="preference twice",
        ),
        pytest.param(OURS + "profiles: []", "config.yaml: there is no profile: name at least one", id="no profile"),
        pytest.param(
            OURS + "profiles: [{schedulerName: a}, {schedulerName: a}]",
            "config.yaml: schedulerName 'a' has more than one profile; keep one of them",
            id="one name twice",
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: A}]",
            "config.yaml: schedulerName of 'A' is 'A'; it must be",
            id="no such name",
        ),
        pytest.param(
            OURS + "profiles: [{schedulerName: a, volumeBindTimeout: 25h}]",
            "config.yaml: volumeBindTimeout of 'a' is 90000s; it must be 0s to 24h",
            id="a day and more for volumes",
        ),
        pytest.param(OURS + "port: 70000", "config.yaml: port is 70000; it must be 0 to 65535", id="out of range"),
        pytest.param(
            OURS + "leaderElection: {renewDeadline: 15s}",
            r"config.yaml: leaderElection.renewDeadline \(15s\) must be below --leader-elect-lease-duration \(15s\)",
            id="contradicts a default",
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


def test_the_example_of_the_documentation(write: Write) -> None:
    """The example in docs/settings.md is valid."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    (example,) = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if text.startswith(OURS)]
    assert [profile.scheduler_name for profile in config_of(write(example)).profiles] == [
        "my-scheduler",
        "my-batch-scheduler",
    ]
