"""
DynamicResources: pods with claims of Dynamic Resource Allocation are always refused.

The DRA driver and kube-scheduler allocate and reserve claims; without that the kubelet never starts the pod.
"""

from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import Plugin, PluginName, PodRefusal, PreFilter
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("DynamicResources")
REASON = "spec.resourceClaims is not supported by this scheduler; use default-scheduler for pods with resource claims"


def pre_filter(_: View, pod: Pod) -> PodRefusal | None:
    return PodRefusal(NAME, REASON) if pod.constraints.resource_claims else None


PLUGIN = Plugin(
    name=NAME,
    pre_filter=PreFilter(pre_filter, reads=(PodField.RESOURCE_CLAIMS,)),
    cause=Cause.POD,
)
