"""
Which machines pods need, which are asked for, and what the limits allow.

Refuses I/O and clocks: others say how long a pod has waited, and ask.
"""
