"""Mutants of what is done about damage that a client can see: in the lines of watches, and in lists."""

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        name="a-damaged-event-is-skipped",
        away="the list after an event whose object is no JSON: it is left out",
        danger="what has happened to the object stays unknown until its next change",
        edits=(
            Edit(
                "kube.watch.watch_line",
                """
                raise DeadEndError(f"the object {decoded.key} of an event was damaged on its way")
                """,
                """
                return None
                """,
            ),
        ),
        where=(r"line garbled",),
    ),
    Mutant(
        name="a-damaged-event-is-believed",
        away="the list after an event whose object is no JSON: it counts as one that cannot be read",
        danger="the object is set aside until its next change, although the server has it whole",
        edits=(
            Edit(
                "kube.watch.watch_line",
                """
                if decoded.damaged:
                """,
                """
                if decoded.damaged and not decoded.key:
                """,
            ),
        ),
        where=(r"line garbled",),
    ),
    Mutant(
        name="a-damaged-line-ends-nothing",
        away="the end of a watch with a line that cannot be read: the next line is read",
        danger="what the line said stays unknown until the object's next change",
        edits=(
            Edit(
                "kube.watch.informer",
                """
                change = await decode_line_in_steps(self.resource, line)
                """,
                """
                with contextlib.suppress(DeadEndError):
                    change = await decode_line_in_steps(self.resource, line)
                """,
            ),
            Edit("kube.watch.informer", "import heapq", "import contextlib, heapq"),
        ),
        where=(r"line cut|line garbled|lines glued",),
    ),
    Mutant(
        name="the-second-object-of-a-line-is-lost",
        away="that a line has one object and nothing more",
        danger="where a line break is lost, the second event is, too",
        edits=(
            Edit(
                "kube.objects.json_scanner",
                """
                if _skip(text, found.end) < len(text):
                """,
                """
                if not text:
                """,
            ),
        ),
        where=(r"lines glued",),
    ),
    Mutant(
        name="a-field-of-a-damaged-name-is-skipped",
        away="the look for bytes that are no UTF-8 in objects of lists and watches",
        danger="a field whose name is damaged counts as absent: a pod on a node waits for one, or has no uid",
        edits=(
            Edit(
                "kube.objects.base",
                """
                if not line.isascii():
                """,
                """
                if not line:
                """,
            ),
            Edit(
                "kube.objects.base",
                """
                if not text.isascii():
                """,
                """
                if not text:
                """,
            ),
        ),
        where=(r"line garbled|answer garbled no text",),
    ),
    Mutant(
        name="a-token-of-a-damaged-name-is-skipped",
        away="the look for bytes that are no UTF-8 in the metadata of a list",
        danger="`continue` counts as absent, and the objects of the other pages as deleted",
        edits=(Edit("kube.watch.pager", "bytes(metadata).decode()", "bytes(metadata)"),),
        where=(r"answer garbled no text.*lists",),
    ),
    Mutant(
        name="versions-may-go-back",
        away="that the versions of a watch are numbers that grow",
        danger="a damaged version leads to a watch that shows what was long ago, and devices look free",
        edits=(
            Edit(
                "kube.watch.watch_line",
                """
                return version.isdigit() and (len(version), version) >= (len(known), known)
                """,
                """
                return True
                """,
            ),
        ),
        where=(r"line with a wrong version",),
    ),
    Mutant(
        name="an-object-may-have-no-uid",
        away="that an event with an object without a uid was damaged",
        danger="the object counts as another one of its name, and a Binding concerns any pod of that name",
        edits=(
            Edit(
                "kube.watch.informer",
                """
                if not decoded.uid and event_type != BOOKMARK:
                """,
                """
                if not event_type:
                """,
            ),
        ),
        where=(r"line without a name",),
    ),
    Mutant(
        name="an-object-may-have-no-name",
        away="that an object has a name",
        danger="it is remembered under its namespace, and no event of its own removes it",
        edits=(
            Edit(
                "kube.objects.base",
                """
                if not meta.name:
                """,
                """
                if not struct:
                """,
            ),
        ),
        where=(r"line without a name",),
    ),
)
