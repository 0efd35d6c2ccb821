"""The demo: a script of pods, the scheduler in a process of its own, and a picture of which pod has which devices."""
