"""
An embedded API server over real HTTP with simulated nodes: for the demo and for fast tests.

The assertions that check its answers also run against a real kube-apiserver and kube-controller-manager
(`tests/sandbox/behaviour.py`). It never serves a real cluster: no authentication, no persistence. Rights and admission
policies are kept and not evaluated, and unknown fields are not refused.
"""
