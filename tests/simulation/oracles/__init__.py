"""
The judges of a history: each oracle knows one promise, and says when it is broken.

An oracle looks at what was committed to the store, or at a replica from outside. `change` has the words that they
share, `judge` applies to any history those that need committed changes only, also to one that was recorded at a real
API server. Rules are written from the documents (`reading`, `node_rules`, `tests.support.neuron_oracle`). Refuses to
use the code that it judges.
"""
