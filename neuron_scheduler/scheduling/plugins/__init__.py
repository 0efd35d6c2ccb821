"""
The plugins: one file and one `Plugin` value for each that kube-scheduler has and we serve, and for our own.

A *filter* returns which of the given nodes cannot take the pod, and why. A *preference* returns the best of the given
nodes. A *pre-filter* refuses the pod itself. All are functions of (view, pod, nodes) that ask indexes: none loops over
nodes or pods.
"""
