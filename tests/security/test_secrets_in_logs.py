"""Tokens are in no log line, metric or error, also at the highest verbosity and when they are refused."""

from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, BOUND, ROOT, run_scheduler
from tests.end_to_end.workload import PODS, add_nodes


def parts(token: str) -> list[str]:
    """Return pieces of a token, so that one that is shown in part is found too; the head of a JWT is no secret."""
    secret = token.split(".", 1)[-1]
    return [secret[start : start + 16] for start in range(0, len(secret) - 16, 16)]


def leaked(text: str, *tokens: str) -> list[str]:
    """Return the pieces of tokens that a text has."""
    return [part for token in tokens for part in parts(token) if part in text]


@pytest.mark.parametrize("logging_format", ["text", "json"])
async def test_a_run_with_everything_logged(installed: ControlPlane, tmp_path: Path, logging_format: str) -> None:
    """Its own token, and those of users who ask questions with and without rights, at verbosity 10."""
    admin = installed.admin
    await admin.delete(PODS, gracePeriodSeconds=0)
    for item in yaml.safe_load_all((ROOT / "manifests/components/questions/rbac.yaml").read_text()):
        await admin.apply(item)
    own = await installed.token_for("kube-system", "neuron-scheduler")
    reader = await installed.token_for("default", "reader")
    kubeconfig = installed.kubeconfig(tmp_path / "kubeconfig", token=own)
    flags = ("-v=10", "--answer-questions", f"--logging-format={logging_format}")
    async with run_scheduler(kubeconfig, *flags) as process:
        await process.line(ACQUIRED)
        await add_nodes(process, admin, trn1="trn1.2xlarge")
        await create_pod(admin, pod_manifest("one", neuron=1))
        await process.line(BOUND)
        for authorization in (f"Bearer {reader}", f"Bearer {reader}x", f"Basic {reader}", f"Bearer\t{reader}"):
            headers = {"Authorization": authorization}
            url = f"http://127.0.0.1:{process.port}/v1/fleet?token={reader}"
            async with aiohttp.request("GET", url, headers=headers) as answer:
                assert answer.status in {400, 401, 403, 503}  # 503: the API server took long to look at the token
                assert leaked(await answer.text(), own, reader) == []
        status, metrics = await process.get("/metrics")
        assert status == 200
        assert await process.stop() == 0
    assert leaked(metrics, own, reader) == []
    assert leaked(process.log, own, reader) == []
    await admin.delete("/api/v1/nodes", gracePeriodSeconds=0)


async def test_a_token_that_is_refused(installed: ControlPlane, tmp_path: Path) -> None:
    """The sentence about it, and the log before it, have no part of the token."""
    token = f"head.{'not-a-secret-0123456789-' * 4}.{'signature-' * 8}"
    kubeconfig = installed.kubeconfig(tmp_path / "kubeconfig", token=token)
    async with run_scheduler(kubeconfig, "-v=10") as process:
        assert await process.ended() == 2
    assert "does not accept our credentials (401)" in process.lines[-1]
    assert leaked(process.log, token) == []


async def test_a_token_that_cannot_be_sent(installed: ControlPlane, tmp_path: Path) -> None:
    """One with characters that no header may have is refused without being shown."""
    token = f"head.{'not-a-secret-0123456789-' * 4}\u2028{'signature-' * 8}"
    kubeconfig = installed.kubeconfig(tmp_path / "kubeconfig", token=token)
    async with run_scheduler(kubeconfig, "-v=10") as process:
        assert await process.ended() == 2
    assert "the user's token has characters that are not printable ASCII" in process.lines[-1]
    assert leaked(process.log, token) == []


def test_the_test_finds_a_token() -> None:
    """In whole, in part, and not where there is none."""
    token = f"head.{'0123456789abcdef' * 3}.tail"
    assert leaked(f"Bearer {token}", token) == [token[5:21], token[21:37], token[37:53]]
    assert leaked(f"...{token[5:30]}...", token) == [token[5:21]] * 3
    assert leaked("a log without it", token) == []
