"""How long a service may compute on the event loop before other tasks, such as watches, get a turn."""

from typing import Final

LONGEST_TURN: Final = 0.002
"""Seconds of decisions, of a search for victims, or of building indexes in a row."""
