"""What runs: one service a module. Each is given what it needs by `wiring`."""
