"""The tables of the cluster, one module each."""
