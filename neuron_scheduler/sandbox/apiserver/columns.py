"""
What a column of a Table is, and the cells that many kinds share.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs

from neuron_scheduler.sandbox.apiserver.store import Object

Cell: TypeAlias = Callable[[Object, datetime], Any]


@attrs.frozen
class Column:
    """One column: its heading, what it shows of a stored object, and its priority."""

    name: str
    cell: Cell
    priority: int = 0
    type: str = "string"

    def definition(self) -> dict[str, Any]:
        """Return the column as the Table declares it."""
        shape = "name" if self.name == "Name" else ""
        return {"name": self.name, "type": self.type, "format": shape, "description": "", "priority": self.priority}


def human_duration(elapsed: timedelta) -> str:
    """Return a duration as kubectl's AGE shows it (`HumanDuration` of apimachinery)."""
    seconds = max(int(elapsed.total_seconds()), 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    steps = (
        (120, f"{seconds}s"),
        (600, f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")),
        (3 * 3600, f"{minutes}m"),
        (8 * 3600, f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")),
        (48 * 3600, f"{hours}h"),
        (8 * 86400, f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")),
    )
    return next((text for limit, text in steps if seconds < limit), f"{days}d")


def name(obj: Object, _: datetime) -> str:
    """Return the name."""
    return str(obj["metadata"]["name"])


def since(text: str | None, now: datetime) -> str:
    """Return the time since a timestamp, as kubectl shows it."""
    return human_duration(now - datetime.fromisoformat(text)) if text else "<unknown>"


def age(obj: Object, now: datetime) -> str:
    """Return the time since the creation."""
    return since(obj["metadata"].get("creationTimestamp"), now)


def at(*path: str, absent: str = "<none>") -> Cell:
    """Return a cell with the value at a path."""

    def cell(obj: Object, _: datetime) -> Any:
        value: Any = obj
        for step in path:
            value = (value or {}).get(step)
        return absent if value is None or value == "" else value

    return cell


NAME: Final = Column("Name", name)
AGE: Final = Column("Age", age)
