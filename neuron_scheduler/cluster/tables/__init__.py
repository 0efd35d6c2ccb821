"""The tables of the cluster: one module for each kind of thing that is remembered."""
