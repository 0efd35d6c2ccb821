"""The NodePools of manifests/examples are such that a real API server with Karpenter's own schema accepts them."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.control_plane.rest import RestClient
from tests.karpenter.karpenter import NODE_POOLS
from tests.support.kustomize import ROOT

EXAMPLES: Final = sorted((ROOT / "manifests" / "examples" / "karpenter").glob("*.yaml"))
STRICT: Final = {"dryRun": "All", "fieldValidation": "Strict"}


def example(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_karpenter_accepts_it(path: Path, karpenter_api: RestClient) -> None:
    """No field is unknown, and none has a value that the schema's rules refuse."""
    status, answer = await karpenter_api.request("POST", NODE_POOLS, example(path), **STRICT)
    assert (status, answer.get("message", "")) == (201, "")


def test_each_is_a_pool_of_its_family() -> None:
    """The instance types are of the family that the file is called after, and pods without a toleration stay away."""
    assert [path.stem for path in EXAMPLES] == ["inf2", "trn1", "trn2"]
    for path in EXAMPLES:
        spec = example(path)["spec"]
        (types,) = (
            each["values"] for each in spec["template"]["spec"]["requirements"] if each["key"].endswith("instance-type")
        )
        assert all(re.fullmatch(rf"{path.stem}\.\w+", name) for name in types)
        assert spec["disruption"]["consolidationPolicy"] == "WhenEmpty"
        pod = yaml.safe_load((ROOT / "manifests" / "examples" / path.name).read_text())
        (taint,) = spec["template"]["spec"]["taints"]
        assert any(
            (each["key"], each["operator"], each["effect"]) == (taint["key"], "Exists", taint["effect"])
            for each in pod["spec"]["tolerations"]
        )
