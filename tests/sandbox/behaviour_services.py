"""
What the API server adds to a Service, on any API server.
"""

from tests.support.sandbox_api import Api


async def a_service_gets_an_address(api: Api) -> None:
    """A cluster IP, and a node port if its type has one; ports get a protocol and a target."""
    made = await api.made("services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})
    assert (made["spec"]["type"], made["spec"]["sessionAffinity"]) == ("ClusterIP", "None")
    assert made["spec"]["clusterIPs"] == [made["spec"]["clusterIP"]]
    assert made["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    ports = [{"name": "http", "port": 12345, "targetPort": "extender", "nodePort": 31700}, {"name": "x", "port": 1}]
    other = await api.made("services", {"metadata": {"name": "b"}, "spec": {"type": "NodePort", "ports": ports}})
    asked, given = other["spec"]["ports"]
    assert (asked["nodePort"], asked["targetPort"]) == (31700, "extender")
    assert 30000 <= given["nodePort"] <= 32767
    assert other["spec"]["clusterIP"] != made["spec"]["clusterIP"]
    headless = {"clusterIP": "None", "ports": [{"port": 80}]}
    assert (await api.made("services", {"metadata": {"name": "c"}, "spec": headless}))["spec"]["clusterIP"] == "None"
