"""
`neuron-scheduler check`: looks at a cluster once, before or after the installation, and says what needs action.

`command` has the flags and the exit code, `reader` asks the API server for `kinds`, `subjects` decides what is found,
and `report` prints it.
"""
