"""What could be changed so that a refused pod fits: one module for each kind of change. Each change has been tried."""
