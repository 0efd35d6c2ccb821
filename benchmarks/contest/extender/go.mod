module neuron-scheduler/benchmarks/extender

go 1.26
