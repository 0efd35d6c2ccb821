"""What runs: one module for each service. `wiring` gives each service what it needs."""
