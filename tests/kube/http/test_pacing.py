"""Waiting times: arithmetic without a clock."""

from neuron_scheduler.kube.http.pacing import Backoff, TokenBucket


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


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    """Turns are given out in advance; saved ones are bounded by the burst."""
    now = 100.0
    bucket = TokenBucket(lambda: now, qps=10, burst=3)

    assert [round(bucket.take(), 6) for _ in range(5)] == [0.0, 0.0, 0.0, 0.1, 0.2]
    now = 1000.0
    assert [round(bucket.take(), 6) for _ in range(4)] == [0.0, 0.0, 0.0, 0.1]


def test_a_turn_that_is_not_there_is_not_taken() -> None:
    """A request in vain takes no later turn."""
    now = 100.0
    bucket = TokenBucket(lambda: now, qps=10, burst=3)

    assert [bucket.take_now() for _ in range(10)] == [True] * 3 + [False] * 7
    now += 0.1
    assert [bucket.take_now(), bucket.take_now()] == [True, False]


def test_no_rate_no_limit() -> None:
    """Zero means unlimited."""
    assert TokenBucket(lambda: 0.0).take_now()
    assert max(TokenBucket(lambda: 0.0).take() for _ in range(100)) == 0.0
