"""Mutants of what carries the requests: connections, pauses, credentials."""

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        name="no-look-at-the-last-moment",
        away="the permit that is asked when the connection is open",
        danger="a replica that was stopped before the first byte binds or evicts after it has lost the Lease",
        edits=(
            Edit(
                "kube.http.http1",
                """
                if permit is not None and not permit():
                """,
                """
                if permit is not None and not (permit() or True):
                """,
            ),
        ),
        where=(
            r"stopped",
            r"answer late.*statuses",
        ),
    ),
    Mutant(
        name="a-late-answer-counts-for-the-next",
        away="the end of a connection whose request was given up",
        danger="the answer to one Binding is taken for that to another",
        edits=(
            Edit(
                "kube.http.http1",
                """
                except BaseException:
                    self.abort()
                    raise
                finally:
                    alarm.cancel()
                    self._answer = None
                """,
                """
                finally:
                    alarm.cancel()
                    self._answer = None
                """,
            ),
            Edit(
                "kube.http.http1",
                """
                if self._answer is None or self._answer.done():
                    self.abort()  # there is no request
                    return
                """,
                """
                if self._answer is None or self._answer.done():
                    return
                """,
            ),
            Edit(
                "kube.http.http1",
                """
                answer = await connection.exchange(request, deadline)
                """,
                """
                try:
                    answer = await connection.exchange(request, deadline)
                except TimeoutError:
                    self._idle.append(connection)
                    raise
                """,
            ),
        ),
        where=(r"(request|answer) late.*bindings",),
    ),
    Mutant(
        name="a-pause-as-long-as-the-server-likes",
        away="the limit on Retry-After",
        danger="one answer of a bad proxy stops the writes for hours",
        edits=(Edit("kube.http.status", "LONGEST_PAUSE: Final = 15.0", "LONGEST_PAUSE: Final = 1e9"),),
        where=(r"server refuses|proxy answers",),
    ),
    Mutant(
        name="one-kind-of-network-error",
        away="that any exception of the HTTP library is one request's",
        danger="an answer that the library did not expect ends the process",
        edits=(
            Edit(
                "kube.http.pools",
                """
                except Exception as error:
                    raise unreachable(error, target) from error
                """,
                """
                except (TimeoutError, ConnectionError) as error:
                    raise unreachable(error, target) from error
                """,
            ),
        ),
        where=(r"answer cut|cut in a chunk",),
    ),
    Mutant(
        name="a-token-is-read-once",
        away="the second look at the token file",
        danger="after a rotation nothing can be read or written any more",
        edits=(
            Edit(
                "kube.http.credentials",
                """
                if self.clock() - self._read_at >= REREAD:
                """,
                """
                if self._header is None:
                """,
            ),
            Edit(
                "kube.http.credentials",
                """
                if self._header == rejected:
                    self._read()
                return await self.authorization()
                """,
                """
                return await self.authorization()
                """,
            ),
        ),
        where=(r"revoke the old tokens",),
    ),
)
