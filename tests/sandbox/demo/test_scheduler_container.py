"""A container of our image becomes a process with the pod's arguments, environment and files, and ports of its own."""

from pathlib import Path
from typing import Any

import pytest

from neuron_scheduler.sandbox.apiserver.store import Store
from neuron_scheduler.sandbox.demo.scheduler_container import is_ours, launch, missing_config_maps, probe_path


def pod(image: str = "neuron-scheduler:0.1.0", **container: Any) -> dict[str, Any]:
    """A pod that mounts the ConfigMap `c` at /etc/x."""
    mounts = [{"name": "config", "mountPath": "/etc/x"}, {"name": "other", "mountPath": "/tmp"}]
    whole = {"name": "main", "image": image, "volumeMounts": mounts, **container}
    volumes = [{"name": "config", "configMap": {"name": "c"}}, {"name": "other", "emptyDir": {}}]
    spec = {"nodeName": "n1", "containers": [whole], "volumes": volumes}
    return {"metadata": {"name": "p", "namespace": "kube-system"}, "spec": spec}


@pytest.mark.parametrize(
    ("image", "ours"),
    [
        ("neuron-scheduler", True),
        ("registry.example:5000/team/neuron-scheduler:0.1.0", True),
        ("neuron-scheduler@sha256:0123", True),
        ("my-neuron-scheduler:1", False),
        ("example/app:1", False),
    ],
)
def test_our_image(image: str, ours: bool) -> None:
    """By the last part of its name, from any registry."""
    assert is_ours(pod(image)) is ours


def test_files_arguments_and_environment(tmp_path: Path) -> None:
    """Mounted paths in arguments lead to the files here; fields of the pod are filled in; ports are our own."""
    store = Store()
    manager = pod(
        args=["run", "--config=/etc/x/config.yaml", "--port=10251"],
        env=[
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "COLOUR", "value": "blue"},
        ],
    )
    assert missing_config_maps(manager, store) == ["c"]
    data = {"config.yaml": "a: 1", "../escape": "b"}
    store.put("configmaps", {"metadata": {"name": "c", "namespace": "kube-system"}, "data": data})
    assert missing_config_maps(manager, store) == []
    started = launch(manager, store, "http://127.0.0.1:8080", tmp_path)
    assert started.arguments[:3] == ["run", f"--config={tmp_path}/0/config.yaml", "--port=10251"]
    assert (tmp_path / "0" / "config.yaml").read_text() == "a: 1"
    assert (tmp_path / "0" / "escape").read_text() == "b"
    assert {"--master=http://127.0.0.1:8080", "--secure-port=0", f"--port={started.port}"} <= {*started.arguments[3:]}
    environment = {name: started.environment[name] for name in ("POD_NAME", "POD_IP", "COLOUR")}
    assert environment == {"POD_NAME": "p", "POD_IP": "127.0.0.1", "COLOUR": "blue"}


def test_the_extender_gets_a_port_of_its_own(tmp_path: Path) -> None:
    """Two replicas on one machine cannot both have 12345."""
    for arguments in (["extender"], ["run", "--extender-bind-address=:12345"]):
        manager = pod(args=arguments)
        del manager["spec"]["volumes"]
        last = launch(manager, Store(), "http://127.0.0.1:8080", tmp_path).arguments[-1]
        assert last.startswith("--extender-bind-address=127.0.0.1:")
        assert not last.endswith(":12345")


def test_the_probe_is_the_pod_s() -> None:
    """Its path, or /readyz."""
    assert probe_path(pod()) == "/readyz"
    assert probe_path(pod(readinessProbe={"httpGet": {"path": "/healthz"}})) == "/healthz"
