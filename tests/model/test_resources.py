"""A pod's effective request is the larger of its running and its starting phase, for each resource."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.model.resources import (
    CPU,
    MEMORY,
    NEURON_CORE,
    NEURON_DEVICE,
    Container,
    Resources,
    effective_requests,
    is_extended,
    maximum,
)


def app(**amounts: int) -> Container:
    """Return an app or ordinary init container."""
    return Container("c", _named(amounts))


def sidecar(**amounts: int) -> Container:
    return Container("s", _named(amounts), sidecar=True)


def _named(amounts: Mapping[str, int]) -> Resources:
    return {NEURON_DEVICE if name == "devices" else name: amount for name, amount in amounts.items()}


@pytest.mark.parametrize(
    ("containers", "init_containers", "want"),
    [
        pytest.param([app(cpu=1), app(cpu=2)], [], {"cpu": 3}, id="app containers add up"),
        pytest.param([app(cpu=1)], [app(cpu=3), app(cpu=2)], {"cpu": 3}, id="init containers run one by one"),
        pytest.param([app(cpu=4)], [app(cpu=3)], {"cpu": 4}, id="a small init container adds nothing"),
        pytest.param(
            [app(devices=4, cpu=1)],
            [app(devices=1, cpu=5)],
            {"devices": 4, "cpu": 5},
            id="the larger phase is chosen for each resource",
        ),
        pytest.param([app(cpu=1)], [sidecar(cpu=2)], {"cpu": 3}, id="a sidecar runs beside the app containers"),
        pytest.param(
            [app(cpu=1)], [sidecar(cpu=2), app(cpu=5)], {"cpu": 7}, id="an init container runs beside earlier sidecars"
        ),
        pytest.param(
            [app(cpu=1)], [app(cpu=5), sidecar(cpu=2)], {"cpu": 5}, id="but not beside those that start later"
        ),
        pytest.param(
            [app(cpu=1)],
            [sidecar(cpu=2), app(cpu=3), sidecar(cpu=4), app(cpu=1)],
            {"cpu": 7},
            id="two sidecars and the app containers are most",
        ),
        pytest.param([], [sidecar(cpu=2)], {"cpu": 2}, id="a sidecar alone"),
        pytest.param([app()], [], {}, id="nothing asked, nothing counted"),
    ],
)
def test_phases(containers: Sequence[Container], init_containers: Sequence[Container], want: Mapping[str, int]) -> None:
    """The sums follow the order in which containers run."""
    assert effective_requests(containers, init_containers=init_containers) == _named(want)


def test_pod_level_requests_replace_sums_of_native_resources_only() -> None:
    """`spec.resources.requests` replaces cpu, memory and hugepages; devices always come from the containers."""
    assert effective_requests(
        [Container("c", {CPU: 1, NEURON_DEVICE: 2, "hugepages-2Mi": 3, "ephemeral-storage": 4})],
        pod_level={CPU: 10, MEMORY: 20, "hugepages-2Mi": 30, NEURON_DEVICE: 16, "ephemeral-storage": 40},
    ) == {CPU: 10, MEMORY: 20, "hugepages-2Mi": 30, NEURON_DEVICE: 2, "ephemeral-storage": 4}


def test_overhead_comes_on_top_of_everything() -> None:
    """The sandbox's own need is added after the phases and after the pod-level requests."""
    assert effective_requests(
        [app(cpu=1)], init_containers=[app(cpu=4)], pod_level={CPU: 3}, overhead={CPU: 10, MEMORY: 5}
    ) == {CPU: 13, MEMORY: 5}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        (NEURON_DEVICE, True),
        (NEURON_CORE, True),
        ("vpc.amazonaws.com/efa", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/batch", False),
        ("attachable.kubernetes.io/volumes", False),
        ("requests.nvidia.com/gpu", False),
    ],
)
def test_extended_resources_are_told_by_their_names(name: str, want: bool) -> None:
    """As upstream's `IsExtendedResourceName`: a prefix that is not Kubernetes' own anywhere in it."""
    assert is_extended(name) is want


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "x/y"]), st.integers(1, 9))
some_containers = st.lists(st.builds(Container, st.just("c"), amounts, st.booleans()), max_size=4)


@given(left=amounts, right=amounts)
def test_maximum_is_by_name(left: Resources, right: Resources) -> None:
    """Each name has the larger of its two amounts, and no argument is changed."""
    before = dict(left), dict(right)
    assert maximum(left, right) == {n: max(left.get(n, 0), right.get(n, 0)) for n in left.keys() | right.keys()}
    assert (left, right) == before


@given(containers=st.lists(st.builds(Container, st.just("c"), amounts), max_size=3), init_containers=some_containers)
def test_the_effective_request_is_the_peak_of_a_simulation(
    containers: list[Container], init_containers: list[Container]
) -> None:
    """Starting the pod step by step and taking the highest level seen gives the same amounts."""
    for name in ("cpu", "memory", "x/y"):
        running = peak = 0
        for container in init_containers:
            peak = max(peak, running + container.requests.get(name, 0))
            if container.sidecar:
                running += container.requests.get(name, 0)
        peak = max(peak, running + sum(c.requests.get(name, 0) for c in containers))
        assert effective_requests(containers, init_containers=init_containers).get(name, 0) == peak
