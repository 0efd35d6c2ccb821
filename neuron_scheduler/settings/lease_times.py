"""
The times of the Lease, and the time that they leave for a write which only the leader may send.

What an old leader started last must have ended before the next one may begin: with the renew deadline, the timeout of
such a write stays below the lease duration. Refuses times that leave too little for a Binding.
"""

from typing import Final

from neuron_scheduler.telemetry.errors import ConfigurationError

DURATION: Final = 15.0  # the defaults are kube-scheduler's; all times are seconds
RENEW_DEADLINE: Final = 10.0
RETRY_PERIOD: Final = 2.0
JITTER: Final = 1.2  # client-go's: a retry may take so many times its period
LONGEST: Final = 4.0  # seconds for a write; with the 10 s deadline below the 15 s of the Lease
SHORTEST: Final = 0.5
LONGEST_LEASE: Final = (1 << 31) - 1  # `leaseDurationSeconds` is int32
_PART: Final = 0.8  # of the time between the deadline and the end of the Lease


def write_timeout(*, lease: float, renew: float) -> float:
    """Return the seconds after which the outcome of a leader's write is unknown."""
    return min(LONGEST, round(_PART * (lease - renew), 3))


def require_order(*, lease: float, renew: float, retry: float) -> None:
    """
    Check the lease duration, the renew deadline and the retry period, in seconds.

    Raises:
        ConfigurationError: two of them contradict each other.
    """
    if lease > LONGEST_LEASE:
        raise ConfigurationError(
            f"--leader-elect-lease-duration is {lease:g}s; it must be {LONGEST_LEASE}s or less, which a Lease can say"
        )
    if lease < 1 or lease != int(lease):
        raise ConfigurationError(f"--leader-elect-lease-duration is {lease:g}s; it must be whole seconds, 1s or more")
    if renew >= lease:
        raise ConfigurationError(
            f"--leader-elect-renew-deadline ({renew:g}s) must be below --leader-elect-lease-duration ({lease:g}s)"
        )
    if retry <= 0 or renew <= JITTER * retry:
        raise ConfigurationError(
            f"--leader-elect-retry-period ({retry:g}s) must be above 0 and, times {JITTER}, below"
            f" --leader-elect-renew-deadline ({renew:g}s)"
        )
    if write_timeout(lease=lease, renew=renew) < SHORTEST:
        raise ConfigurationError(
            f"--leader-elect-lease-duration ({lease:g}s) must exceed --leader-elect-renew-deadline ({renew:g}s)"
            f" by {SHORTEST / _PART:g}s or more, so that an old leader's last Binding has ended in time"
        )
