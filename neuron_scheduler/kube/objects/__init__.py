"""API objects from JSON to values of `model`: `base` for all kinds, and one module for each kind."""
