"""
Neuron devices and cores: pure functions of machines, core masks and requests.

`catalog` says what machine a node is, `topology` where a request fits, `annotations` how ids are written on a pod.
"""
