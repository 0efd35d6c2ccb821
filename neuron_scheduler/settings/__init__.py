"""Flags and the configuration file: what a user can set, checked before anything starts."""
