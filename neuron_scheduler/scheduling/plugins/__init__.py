"""
One file for each plugin of kube-scheduler that we serve, and `neuron_topology`.

A *filter* says which of the given nodes cannot take the pod, and why; a *preference* says which of the given nodes
it likes best; a *pre-filter* refuses the pod itself. All are functions of (view, pod, nodes) that ask indexes:
none loops over nodes or pods.
"""
