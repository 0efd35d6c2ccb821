"""Mutants of lists and watches: what is read, from which version, and when a watch is given up."""

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        name="only-410-leads-to-a-list",
        away="the list after ERROR events, lines that cannot be read, and several failures in a row",
        danger="the watch fails for ever at the same version",
        edits=(
            Edit(
                "kube.watch.informer",
                """
                if _is_dead_end(error) or self._failures % TRIES == 0:
                """,
                """
                if isinstance(error, ApiError) and error.status == 410:
                """,
            ),
        ),
        where=(r"watch refused",),
    ),
    Mutant(
        name="a-watch-without-an-end",
        away="the time limit of a watch",
        danger="on a connection that is silent and dead nothing new is seen",
        edits=(
            Edit(
                "kube.watch.informer",
                """
                "timeoutSeconds": str(seconds),
                """,
                """
                "timeoutSeconds": "3600",
                """,
            ),
            Edit(
                "kube.watch.informer",
                """
                most = seconds + WATCH_SLACK
                """,
                """
                most = 3605.0
                """,
            ),
        ),
        where=(r"watch silent|connection silent",),
    ),
    Mutant(
        name="a-recreated-object-is-the-old-one",
        away="the comparison of uids when an object of the same name comes",
        danger="a pod that is gone, and whose end was missed, holds its devices for ever",
        edits=(
            Edit(
                "kube.watch.object_store",
                """
                if old is not None and (old.uid != value.uid or key in self._doubtful):
                """,
                """
                if old is not None and key in self._doubtful:
                """,
            ),
        ),
        where=(
            r"stop api-",
            r"create again|create node",
        ),
    ),
    Mutant(
        name="a-poison-object-ends-the-process",
        away="that no object makes the decoder raise",
        danger="every replica ends as soon as it reads the object, again and again",
        edits=(
            Edit(
                "kube.objects.base",
                "except Exception:  # noqa: BLE001 - RecursionError",
                "except msgspec.MsgspecError:  # RecursionError",
            ),
            Edit(
                "kube.objects.base",
                "except Exception as error:  # noqa: BLE001 - as above",
                "except msgspec.MsgspecError as error:",
            ),
        ),
        where=(r"poison|nested|deep",),
    ),
    Mutant(
        name="an-unreadable-pod-holds-nothing",
        away="that a pod on a node whose object cannot be read is an unknown holder there",
        danger="its devices are given to another pod",
        edits=(
            Edit(
                "controllers.handlers.pods",
                """
                if malformed.node_name and malformed.uid:
                """,
                """
                if not malformed:
                """,
            ),
        ),
        where=(r"poison|unreadable|cannot be read",),
    ),
)
