"""
Server-side apply: what a manager left out since its last configuration goes, everything else is merged.

The last configurations are remembered here, and not shown as `managedFields`. Managers do not come into conflict: the
last one to apply a field has it, also if `force` is not set.
"""

import copy
from collections.abc import Mapping
from typing import Any

import attrs

from neuron_scheduler.sandbox.apiserver.patch import merge_key, strategic_merge


@attrs.define(eq=False)
class Applied:
    """The last configuration of each object, by uid, and manager."""

    _last: dict[tuple[str, str], Mapping[str, Any]] = attrs.field(factory=dict)

    def merged(self, obj: Mapping[str, Any], manager: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object with a manager's next configuration."""
        last = self._last.get((obj["metadata"]["uid"], manager), {})
        return strategic_merge(_without_dropped(obj, last, configuration), configuration)

    def remember(self, obj: Mapping[str, Any], manager: str, configuration: Mapping[str, Any]) -> None:
        """Note what a manager has applied."""
        self._last[obj["metadata"]["uid"], manager] = copy.deepcopy(dict(configuration))


def _without_dropped(target: Any, last: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target without the fields that are in the last configuration only."""
    kept = dict(target) if isinstance(target, dict) else {}
    for field, before in last.items():
        if field not in kept:
            continue
        now = configuration.get(field)
        if isinstance(before, dict) and isinstance(kept[field], dict) and (now is None or isinstance(now, dict)):
            kept[field] = _without_dropped(kept[field], before, now or {})
            if not kept[field] and now is None:
                del kept[field]
        elif isinstance(before, list) and (key := merge_key(field, before)):
            kept[field] = _without_dropped_items(key, kept[field] or [], before, now or [])
        elif now is None:
            del kept[field]
    return kept


def _without_dropped_items(key: str, target: list[Any], last: list[Any], configuration: list[Any]) -> list[Any]:
    before = {item.get(key): item for item in last}
    now = {item.get(key): item for item in configuration}
    return [
        _without_dropped(item, before.get(item.get(key), {}), now.get(item.get(key), {}))
        for item in target
        if item.get(key) not in before or item.get(key) in now
    ]
