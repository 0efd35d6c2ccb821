"""
The bearer token of the replicas: which ones the servers accept, and which one the replicas' file has.

The scheduler reads it with `open`, so the file is a real one. It is in memory, under a number of its own: so it has the
same path in each run, and nothing is left of it.
"""

import os
from typing import Final

import attrs

KUBECONFIG: Final = "/proc/self/fd/900"
"""The path with which the replicas are started."""
_TOKEN: Final = "/proc/self/fd/901"
_CONFIG: Final = f"""\
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: c, user: me}}}}]
clusters: [{{name: c, cluster: {{server: "http://10.0.0.10:6443"}}}}]
users: [{{name: me, user: {{tokenFile: {_TOKEN}}}}}]
"""


@attrs.define(eq=False)
class Tokens:
    """The tokens of one account; the servers know `accepted`."""

    accepted: set[str] = attrs.field(factory=set)
    _number: int = 0

    def __attrs_post_init__(self) -> None:
        _write(KUBECONFIG, _CONFIG)
        self.issue()
        self.write()

    def accepts(self, authorization: str) -> bool:
        """Return whether a request with this header has a token that is known."""
        return authorization.removeprefix("Bearer ") in self.accepted

    def issue(self) -> None:
        """Let the servers accept a new token beside the others."""
        self._number += 1
        self.accepted.add(f"token-{self._number}")

    def write(self) -> None:
        _write(_TOKEN, f"token-{self._number}\n")

    def revoke(self) -> None:
        """Let the servers refuse all but the newest."""
        self.accepted = {f"token-{self._number}"}


def _write(path: str, text: str) -> None:
    number = int(path.rpartition("/")[2])
    file = os.memfd_create("simulation")
    os.dup2(file, number)
    os.close(file)
    os.pwrite(number, text.encode(), 0)
