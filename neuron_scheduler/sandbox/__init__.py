"""
An embedded API server over real HTTP with imagined nodes: for the demo and for fast tests.

It is small but honest: what it answers is checked by the same assertions that run against a real kube-apiserver
(`tests/sandbox/behaviour.py`). It never serves a real cluster: no authentication, no authorization, no persistence.
"""
