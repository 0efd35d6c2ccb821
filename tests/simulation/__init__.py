"""
The whole process, replayed from a seed: its event loop, its network, its time and its bad days are simulated.

The real `neuron_scheduler.app`, in one or several replicas, runs against the sandbox's API servers on one event loop
with virtual time. What happens follows from the seed alone. Refuses to simulate what the scheduler itself does: no part
of it is replaced, and the package does not know that it is simulated. `python -m tests.simulation SEED` replays a seed.
"""
