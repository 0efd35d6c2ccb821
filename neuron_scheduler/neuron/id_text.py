"""
Ids of devices or cores as people read them: `devices 0-3, 8`.

Does not read such a text: ids are read from annotations only (`neuron.annotations`).
"""

from collections.abc import Collection, Iterable


def numbered(ids: Collection[int], unit: str) -> str:
    """Return `devices 4-7`, `core 5` or `devices 0-3, 8`; the ids ascend."""
    return f"{unit}{'' if len(ids) == 1 else 's'} {runs_of(ids)}"


def runs_of(ids: Iterable[int]) -> str:
    """Return ascending ids with each run of neighbours as its first and last: `0-3, 8`."""
    runs: list[list[int]] = []
    for number in ids:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
