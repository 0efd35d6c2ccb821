"""
The name by which one object refers to another.

The API server checks the names of objects, but not every reference to one: `claimName` of a pod's volume may be a
megabyte of control characters. Such a text is in messages, Events and log lines that others read. So what cannot be a
name is made short and printable here, in a form that is no object's name either. Does not say whether the object
exists.
"""

from typing import Final

from neuron_scheduler.telemetry.line_formats import printable

MOST: Final = 253
"""Characters of the longest name (`DNS1123SubdomainMaxLength` in `apimachinery/pkg/util/validation`)."""


def reference(name: str) -> str:
    """Return the name as it is, or, if no object can have it, in a form that people and programs can read safely."""
    if len(name) > MOST:
        return f"{printable(name[:MOST])}..."
    return printable(name)
