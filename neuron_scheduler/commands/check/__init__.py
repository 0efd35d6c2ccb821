"""
`neuron-scheduler check`: looks at a cluster once, before or after the installation, and says what needs action.

`command` has the flags and the exit code, `reader` asks the API server, `subjects` decides what is found, and
`text_report` and `json_report` print it. Does not write anything to the cluster.
"""
