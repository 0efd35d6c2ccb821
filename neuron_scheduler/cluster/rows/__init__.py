"""One node, with its pods and its Neuron cores, as an immutable row."""
