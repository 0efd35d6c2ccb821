"""API objects from JSON into values of `model`: one module a kind, beside its fields on the wire."""
