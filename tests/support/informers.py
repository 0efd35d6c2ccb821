"""Informers for tests: of pods, if nothing else is said, with nobody to tell of failures, and with short pauses."""

from contextlib import nullcontext
from typing import Any

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.informer import Informer


def informer_of(client: Client, handler: Any, **options: Any) -> Informer[Any]:
    """Return an informer; `options` are its fields."""
    quick = Backoff(lambda: 0.0, first=0.001, most=0.002)
    nobody: Any = {"on_failure": lambda _: None, "on_unhandled": lambda _: None}
    listing = options.pop("listing", nullcontext)
    informer: Informer[Any] = Informer(client=client, **({"resource": PODS, "backoff": quick} | nobody | options))
    informer.add_event_handler(handler, listing=listing)
    return informer
