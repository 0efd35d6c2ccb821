"""With --authorize-metrics the API server decides which clients read /metrics, by the rights in manifests/."""

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path

import aiohttp
import attrs
import trustme
import yaml

from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, free_port
from tests.end_to_end import rights
from tests.end_to_end.process import ROOT, SYNCED, SchedulerProcess, run_scheduler, until
from tests.faults.answers import Refusal
from tests.faults.calls import at
from tests.faults.proxy import ALWAYS, Fault, instead, run_proxy

NAME = "secured"  # an account of its own: another test compares the requests of neuron-scheduler with its rights
COMPONENT = ROOT / "manifests" / "components" / "secure-metrics"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@attrs.frozen
class Scraper:
    """A client of the metrics, with the certificate authority that it trusts."""

    url: str
    trusted: ssl.SSLContext

    async def get(self, token: str | None, path: str = "/metrics") -> tuple[int, str]:
        """Return status and text."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with aiohttp.request("GET", f"{self.url}{path}", ssl=self.trusted, headers=headers) as answer:
            return answer.status, await answer.text()


def for_us(items: Iterable[Object]) -> Iterator[Object]:
    """Yield the objects with the account of this test in the place of neuron-scheduler in their bindings."""
    for item in deepcopy([*items]):
        if item["kind"].endswith("Binding"):
            item["metadata"]["name"] += f"-of-{NAME}"
            item["subjects"][0]["name"] = NAME
        yield item


async def grant_reviews(api: RestClient) -> None:
    """Apply the rights of manifests/components/secure-metrics, and wait until they count."""
    for item in for_us(yaml.safe_load_all((COMPONENT / "rbac.yaml").read_text())):
        await api.apply(item)
    asked = {"verb": "create", "group": "authentication.k8s.io", "resource": "tokenreviews"}
    await until(partial(allowed, api, f"kube-system:{NAME}", {"resourceAttributes": asked}))


async def let_scrape(api: RestClient, name: str) -> None:
    """Bind a ServiceAccount of the namespace `monitoring` to the role for scrapers, and wait until that counts."""
    await api.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{name}-scrapes"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "neuron-scheduler-metrics",
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "monitoring"}],
        }
    )
    asked = {"verb": "get", "path": "/metrics"}
    await until(partial(allowed, api, f"monitoring:{name}", {"nonResourceAttributes": asked}))


async def allowed(api: RestClient, account: str, asked: Object) -> bool:
    """Return whether a ServiceAccount has a right."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:{account}", **asked},
    }
    answer = await api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@asynccontextmanager
async def secured(plane: ControlPlane, folder: Path, master: str) -> AsyncIterator[tuple[SchedulerProcess, Scraper]]:
    """Run a scheduler that asks for tokens, as the account of this test."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    (folder / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(folder / "tls.key")
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    port = free_port()
    flags = (
        "--authorize-metrics",
        f"--secure-port={port}",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        "--leader-elect=false",
        f"--master={master}",
    )
    token = await plane.token_for("kube-system", NAME)
    async with run_scheduler(plane.kubeconfig(folder / "kubeconfig", token=token), *flags) as scheduler:
        yield scheduler, Scraper(f"https://127.0.0.1:{port}", trusted)


async def test_who_may_read_the_metrics(plane: ControlPlane, empty: RestClient, tmp_path: Path) -> None:
    """A token with the right is admitted, others get 401 or 403; without the API server no new one; health is open."""
    await rights.grant(empty, for_us(rights.manifests()))
    await grant_reviews(empty)
    reader, late, other = [await plane.token_for("monitoring", name) for name in ("reader", "late", "other")]
    for name in ("reader", "late"):
        await let_scrape(empty, name)
    async with run_proxy(plane) as proxy, secured(plane, tmp_path, proxy.url) as (scheduler, scraper):
        await scheduler.line(SYNCED)
        status, text = await scraper.get(reader)
        assert (status, "scheduler_pending_pods" in text) == (200, True)
        status, text = await scraper.get(other)
        assert (status, 'User \\"system:serviceaccount:monitoring:other\\" cannot get path' in text) == (403, True)
        assert [(await scraper.get(token))[0] for token in (None, "garbage", f"{reader[:-4]}AAAA")] == [401] * 3
        away = proxy.add(Fault(at(REVIEWS), instead(Refusal(503)), times=ALWAYS))
        assert [(await scraper.get(token))[0] for token in (late, reader)] == [503, 200]
        away.times = 0
        assert (await scraper.get(late))[0] == 200
        for path in ("/livez", "/readyz", "/healthz"):
            assert await scraper.get(None, path) == await scheduler.get(path) == (200, "ok")
        assert (await scheduler.get("/metrics"))[0] == 403
        assert await scheduler.stop() == 0
