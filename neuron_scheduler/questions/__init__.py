"""The running scheduler's answers over its own port: why, fit, the fleet, what waits and what was decided."""
