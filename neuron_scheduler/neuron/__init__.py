"""
The silicon: pure functions of machines, core masks and requests.

`catalog` says what a node is, `topology` where a request fits on it, `allocation` how ids stand on a pod. Nothing here
remembers, waits or logs.
"""
