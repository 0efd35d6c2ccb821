"""
What is checked: a snapshot of a cluster -> findings; `report.SUBJECTS` has them in order.

A subject is a function of the snapshot alone. What could not be read is a finding of its own and never counts as fine;
what is not installed is not a fault.
"""
