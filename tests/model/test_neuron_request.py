"""A pod's request for Neuron: counts of the containers that run together, and the size of the pod's set."""

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.model.neuron_request import (
    MixedNeuronRequestError,
    NeuronRequest,
    Unit,
    neuron_container_names,
    neuron_request,
)
from neuron_scheduler.model.resources import (
    NEURON_CORE,
    NEURON_DEVICE,
    NEURON_DEVICE_ALIAS,
    Container,
    effective_requests,
)


def app(name: str = "c", count: int = 0, resource: str = NEURON_DEVICE) -> Container:
    """Return a container that asks for some devices."""
    return Container(name, {resource: count} if count else {"cpu": 100})


def sidecar(name: str = "s", count: int = 0, resource: str = NEURON_DEVICE) -> Container:
    return Container(name, {resource: count} if count else {}, sidecar=True)


@pytest.mark.parametrize(
    ("containers", "init_containers", "counts", "inits", "total"),
    [
        pytest.param([app(count=4)], [], (4,), (), 4, id="one container"),
        pytest.param(
            [app(count=1), app(), app(count=2)], [], (1, 2), (), 3, id="containers without Neuron are left out"
        ),
        pytest.param([app(count=1)], [app(count=1)], (1,), ((1, 0),), 1, id="an init container reuses the pod's ids"),
        pytest.param([app(count=1)], [app(count=4)], (1,), ((4, 0),), 4, id="a larger init container sets the size"),
        pytest.param([app(count=2)], [sidecar(count=1)], (1, 2), (), 3, id="sidecars come first and add up"),
        pytest.param(
            [app(count=2)],
            [sidecar(count=1), app(count=4)],
            (1, 2),
            ((4, 1),),
            5,
            id="an init container beside a sidecar",
        ),
        pytest.param(
            [app(count=2)],
            [app(count=4), sidecar(count=1)],
            (1, 2),
            ((4, 0),),
            4,
            id="an init container before the sidecar",
        ),
        pytest.param([app()], [app(count=2)], (), ((2, 0),), 2, id="only the init container asks"),
    ],
)
def test_counts(
    containers: Sequence[Container],
    init_containers: Sequence[Container],
    counts: tuple[int, ...],
    inits: tuple[tuple[int, int], ...],
    total: int,
) -> None:
    """Containers that run together have their own counts; ordinary init containers reuse ids of the pod's set."""
    request = neuron_request(containers, init_containers)
    assert request is not None
    assert (request.unit, request.resource) == (Unit.DEVICE, NEURON_DEVICE)
    assert (request.counts, request.inits, request.total) == (counts, inits, total)


def test_a_total_belongs_to_its_counts() -> None:
    """A total that differs from the sum of the containers is a bug, not a request."""
    assert NeuronRequest(Unit.DEVICE, (4, 1), 8, (4,), beside=(1,)).widest == (4, 4)
    for total, beside in ((5, (1,)), (8, (0,))):
        with pytest.raises(ValueError, match="at once"):
            NeuronRequest(Unit.DEVICE, (4, 1), total, (4,), beside=beside)


@pytest.mark.parametrize(
    ("resource", "unit"),
    [(NEURON_DEVICE, Unit.DEVICE), (NEURON_DEVICE_ALIAS, Unit.DEVICE), (NEURON_CORE, Unit.CORE)],
)
def test_units(resource: str, unit: Unit) -> None:
    """The alias counts devices; the name is kept, because each name has its own account."""
    request = neuron_request([app(count=2, resource=resource)])
    assert request is not None
    assert (request.unit, request.resource) == (unit, resource)


def test_no_request() -> None:
    """A pod without Neuron has none."""
    assert neuron_request([app()], [sidecar()]) is None
    assert neuron_container_names([app()], [sidecar()]) == ()


WITH_CORES = Container("c", {NEURON_DEVICE: 4, NEURON_CORE: 8})


@pytest.mark.parametrize("name", [NEURON_DEVICE, NEURON_DEVICE_ALIAS])
def test_devices_with_their_cores(name: str) -> None:
    """They are a request for devices, which says how many cores each has; Kubernetes counts both."""
    containers = [app("none"), Container("c", {name: 4, NEURON_CORE: 8})]
    setup = Container("setup", {name: 16, NEURON_CORE: 32})
    request = neuron_request(containers, [setup])
    assert request == NeuronRequest(Unit.DEVICE, (4,), 16, (16,), resource=name, cores_each=2)
    assert effective_requests(containers, init_containers=[setup])[NEURON_CORE] == 16 * request.cores_each
    assert neuron_container_names(containers, [setup]) == ("c", "setup")


@pytest.mark.parametrize(
    ("containers", "init_containers"),
    [
        pytest.param([Container("c", {NEURON_DEVICE: 2, NEURON_CORE: 3})], [], id="cores of no whole devices"),
        pytest.param([WITH_CORES, Container("d", {NEURON_DEVICE: 4, NEURON_CORE: 4})], [], id="other cores for each"),
        pytest.param([WITH_CORES, app(count=1)], [], id="cores in one of two containers"),
        pytest.param([WITH_CORES], [app(count=2, resource=NEURON_CORE)], id="cores alone in an init container"),
        pytest.param([WITH_CORES], [app(count=4, resource=NEURON_DEVICE_ALIAS)], id="all three names"),
        pytest.param([app(count=1), app(count=1, resource=NEURON_CORE)], [], id="in two containers"),
        pytest.param([app(count=1)], [app(count=1, resource=NEURON_CORE)], id="in an init container"),
        pytest.param([app(count=1)], [sidecar(count=1, resource=NEURON_DEVICE_ALIAS)], id="two names of devices"),
    ],
)
def test_one_name_in_one_pod(containers: Sequence[Container], init_containers: Sequence[Container]) -> None:
    """The one annotation holds either devices or cores; the error names both and says what to do."""
    with pytest.raises(MixedNeuronRequestError, match=r"pod asks for aws\.amazon\.com/neuron.* and aws.*; ask for"):
        neuron_request(containers, init_containers)


def test_one_unit() -> None:
    """The plugin serves a single unit by itself."""
    single = neuron_request([app(count=1)], [app(count=1)])
    several = neuron_request([app(count=1)], [app(count=2)])
    assert single is not None
    assert several is not None
    assert (single.is_one_unit, several.is_one_unit) == (True, False)


def test_names_belong_to_counts() -> None:
    """Names come in the order of the counts: sidecars, then app containers, then ordinary init containers."""
    containers = [app("a", 1), app("none"), app("b", 2)]
    init_containers = [sidecar("side", 3), app("init", 1), sidecar("idle")]
    request = neuron_request(containers, init_containers)
    assert request is not None
    assert request.counts == (3, 1, 2)
    assert neuron_container_names(containers, init_containers) == ("side", "a", "b", "init")


some = st.lists(st.builds(app, count=st.integers(0, 4)), max_size=4)


@given(
    containers=some,
    init_containers=st.lists(
        st.one_of(st.builds(app, count=st.integers(0, 6)), st.builds(sidecar, count=st.integers(0, 3))), max_size=4
    ),
)
def test_the_total_is_what_kubernetes_counts(containers: list[Container], init_containers: list[Container]) -> None:
    """The size of the set equals the effective request that counts on the node."""
    request = neuron_request(containers, init_containers)
    effective = effective_requests(containers, init_containers=init_containers).get(NEURON_DEVICE, 0)
    assert (request.total if request else 0) == effective
    if request is not None:
        assert request.total >= max(sum(request.counts), *request.init_counts, 0)
        names = neuron_container_names(containers, init_containers)
        assert len(names) == len(request.counts) + len(request.init_counts)
