"""A namespace, as far as affinity terms select pods by it."""

from collections.abc import Mapping

import attrs

from neuron_scheduler.model.selectors import NO_LABELS


@attrs.frozen
class Namespace:
    """One namespace."""

    uid: str
    name: str
    labels: Mapping[str, str] = NO_LABELS
