"""Waiting times: arithmetic without a clock."""

from neuron_scheduler.kube.http.backoff import Backoff


def test_backoff_doubles_up_to_its_limit() -> None:
    """As client-go's reflector: 0.8 s to 30 s."""
    backoff = Backoff(lambda: 0.0)

    assert [backoff.next() for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    backoff.reset()
    assert backoff.next() == 0.8


def test_backoff_has_jitter_and_respects_the_server() -> None:
    """Replicas do not come back together, and not earlier than the server asks."""
    assert round(Backoff(lambda: 0.5).next(), 6) == 1.2
    assert Backoff(lambda: 0.999, first=30).next() == 30.0
    assert Backoff(lambda: 0.0).next(at_least=60.0) == 60.0
