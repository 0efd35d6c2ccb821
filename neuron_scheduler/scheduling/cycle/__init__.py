"""One decision: the profile's plugins, asked about all nodes at once, and what a refusal says."""
