"""
A row read anew, because something outside it says otherwise: its node's object, or the storage that its pods refer to.

Pods stay as they are; what they hold of silicon depends on the machine, and what they hold of volumes on claims,
volumes and classes. Refuses to look for the rows that are meant: `cluster` finds them.
"""

import attrs

from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeState, on_node, with_tenant, without_tenant
from neuron_scheduler.cluster.rows.pod_info import Tenant, tenant_of
from neuron_scheduler.cluster.tables.volumes import Volumes
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.volumes import NodeStorage


def claims_on(state: NodeState) -> Values:
    """Index definition: nodes by the keys of the claims that their pods use."""
    return tuple(held for held in state.volumes if isinstance(held, str)) if state.volumes else ()


def holding(tenant: Tenant, volumes: Volumes) -> Tenant:
    """Return the tenant with what it holds of volumes by now."""
    held = volumes.held_by(tenant.pod)
    return tenant if held == tenant.volumes else attrs.evolve(tenant, volumes=held)


def holding_anew(state: NodeState, volumes: Volumes) -> NodeState:
    """Return the row with what all its tenants hold of volumes by now."""
    for uid, tenant in state.tenants.items():
        again = holding(tenant, volumes)
        if again is not tenant:
            state = with_tenant(without_tenant(state, uid), again)
    return state


def on_new_node(before: NodeState, node: Node, storage: NodeStorage) -> NodeState:
    """Return the row of a node's new object; on another machine silicon is read anew, and no promise stands."""
    machine = on_node(node).machine
    if machine == before.machine:
        return attrs.evolve(before, node=node, storage=storage)
    tenants = {
        uid: tenant if tenant.unreadable else attrs.evolve(tenant_of(tenant.pod, machine), volumes=tenant.volumes)
        for uid, tenant in before.tenants.items()
    }
    return attrs.evolve(on_node(node, tenants), storage=storage)
