"""Everything that is written: Bindings, Events, conditions, volumes, deletions, the Lease."""
