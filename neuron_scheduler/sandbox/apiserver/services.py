"""
The defaults of a Service and its addresses. Nothing serves them: the sandbox has no network of its own.
"""

from typing import Final

import attrs

from neuron_scheduler.sandbox.apiserver.store import Object

_FIRST_NODE_PORT: Final = 30_000


@attrs.define(eq=False)
class Addresses:
    """Gives each Service a cluster IP and, if its type has them, node ports."""

    _given: int = 0

    def default(self, service: Object) -> None:
        """Set what is missing in place."""
        spec = service.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or []:
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port["port"])
            if spec["type"] in {"NodePort", "LoadBalancer"} and not port.get("nodePort"):
                self._given += 1
                port["nodePort"] = _FIRST_NODE_PORT + self._given
        if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
            self._given += 1
            spec["clusterIP"] = f"10.96.{self._given // 250}.{self._given % 250 + 1}"
            spec["clusterIPs"] = [spec["clusterIP"]]
