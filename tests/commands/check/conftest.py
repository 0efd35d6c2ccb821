"""Marks the tests that run a control plane of their own."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, so that `-m "not control_plane"` leaves them out."""
    for item in items:
        if "checked_plane" in getattr(item, "fixturenames", ()):
            item.add_marker("control_plane")
