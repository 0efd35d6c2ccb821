"""
How long pods run: quantiles of a production trace of GPU pods.

The table is from `openb_pod_list_default.csv` of the openb trace (Alibaba; published by HKUST with "Beware of
Fragmentation", Weng et al., USENIX ATC '23; https://github.com/hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0):
deletion_time less scheduled_time of the 6,203 pods that asked for a GPU and were scheduled, without the longest 1 %
(these last longer than any benchmark, and have 89 % of all time). Another trace of the same form can be read instead.
"""

import csv
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self

import attrs

LEFT_OUT = 0.01
"""The share of pods, the longest ones, that a trace is read without."""


@attrs.frozen
class Lifetimes:
    """
    A distribution of seconds.

    Attributes:
        knots: ascending quantiles at equal distances, from the shortest to the longest; linear between them.
    """

    knots: tuple[float, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """
        Read a trace: a CSV file with the columns num_gpu, scheduled_time and deletion_time.

        Raises:
            ValueError: fewer than two pods in it asked for a GPU and were scheduled.
        """
        with path.open(newline="") as lines:
            seconds = sorted(
                float(row["deletion_time"]) - float(row["scheduled_time"])
                for row in csv.DictReader(lines)
                if float(row["num_gpu"]) and row["scheduled_time"] and row["deletion_time"]
            )
        kept = seconds[: len(seconds) - int(len(seconds) * LEFT_OUT)]
        if len(kept) < 2:
            raise ValueError(f"{path} has no lifetimes")
        return cls(tuple(kept))

    def quantile(self, share: float) -> float:
        """Return the quantile: this share of the pods (0 to 1) runs at most so many seconds."""
        place = share * (len(self.knots) - 1)
        low = min(int(place), len(self.knots) - 2)
        return self.knots[low] + (self.knots[low + 1] - self.knots[low]) * (place - low)

    @property
    def mean(self) -> float:
        """Mean seconds."""
        return sum(low + high for low, high in pairwise(self.knots)) / (2 * (len(self.knots) - 1))

    def stratified(self, count: int, dice: random.Random) -> Sequence[float]:
        """Return so many lifetimes in random order, one from each of as many equal shares of the distribution."""
        lifetimes = [self.quantile((i + 0.5) / count) for i in range(count)]
        dice.shuffle(lifetimes)
        return lifetimes

    def remaining(self, dice: random.Random) -> float:
        """
        Return the remaining seconds of a pod that is running at a random moment.

        The chance to find a pod is proportional to its lifetime; every point of its life is equally likely.
        """
        while True:
            lifetime = self.quantile(dice.random())
            if dice.random() * self.knots[-1] < lifetime:
                return lifetime * dice.random()


# fmt: off
OPENB = Lifetimes((
    4, 14, 20, 27, 29, 33, 36, 39, 42, 45, 47, 50, 51, 53, 54, 56, 59, 60, 62, 64, 66, 69, 72, 74, 76, 79, 83, 86,
    90, 92, 96, 102, 108, 112, 117, 121, 125, 129, 132, 137, 142, 146, 148, 151, 154, 159, 162, 166, 171, 177, 181,
    187, 192, 195, 198, 200, 202, 205, 210, 212, 216, 220, 223, 228, 233, 241, 245, 251, 259, 267, 273, 280, 287,
    294, 305, 314, 321, 331, 340, 351, 362, 370, 385, 404, 419, 428, 441, 459, 473, 490, 506, 514, 532, 540, 546,
    557, 568, 579, 597, 610, 629, 654, 672, 692, 715, 738, 756, 772, 787, 806, 824, 843, 865, 886, 905, 929, 937,
    944, 957, 973, 1002, 1032, 1057, 1081, 1115, 1132, 1155, 1174, 1199, 1216, 1239, 1276, 1303, 1333, 1365, 1398,
    1446, 1482, 1513, 1557, 1600, 1679, 1721, 1783, 1854, 1918, 1984, 2035, 2076, 2121, 2186, 2261, 2339, 2399,
    2480, 2556, 2664, 2762, 2880, 2996, 3127, 3225, 3391, 3542, 3621, 3662, 3760, 3879, 3991, 4057, 4124, 4207,
    4350, 4505, 4624, 4812, 5076, 5400, 5675, 6075, 6540, 7090, 7458, 7930, 8380, 9268, 10074, 10822, 11607, 12520,
    13638, 15091, 17140, 20124, 22860, 26470, 32553, 40817, 58239, 75210, 147608,
))
# fmt: on
