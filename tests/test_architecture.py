"""The rooms of the package import one way, and the pure ones stay pure; each violation is named."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[1] / "neuron_scheduler"
LEAVES: Final = {"errors", "telemetry", "work_queue", "delaying_queue"}  # they know no room
DOMAIN: Final = {"model", "neuron", "cluster", "scheduling"}

MAY_IMPORT: Final = {
    "model": set[str](),
    "neuron": {"model"},
    "cluster": {"model", "neuron"},
    "scheduling": {"model", "neuron", "cluster"},
    "kube": {"model"} | LEAVES,
    "errors": set[str](),
    "telemetry": {"errors"},
    "work_queue": set[str](),
    "delaying_queue": {"work_queue"},
    "settings": {"errors", "scheduling"},
    "endpoints": {"kube"} | LEAVES,
    "controllers": DOMAIN | LEAVES | {"kube"},
    "wiring": DOMAIN | LEAVES | {"kube", "settings", "controllers"},
    "app": DOMAIN | LEAVES | {"kube", "endpoints", "settings", "stopping", "wiring", "controllers"},
    "sandbox": {"model", "neuron", "app", "settings"} | LEAVES,  # imagined: it shares no code with what talks to it
    "cli": {"app", "settings", "sandbox"} | LEAVES,
    "stopping": set[str](),
    "__main__": {"cli", "stopping"},
}
IMPURE: Final = {"asyncio", "logging", "os", "random", "socket", "subprocess", "threading", "time"}
PURE_LIBRARIES: Final = {"attrs"} | (sys.stdlib_module_names - IMPURE)
ASYNC: Final = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def room_of(name: str) -> str:
    """Return the room of a module of the package; `name` is like `neuron_scheduler.kube.http.client`."""
    return name.split(".")[1]


def modules() -> Iterator[tuple[str, str, ast.Module]]:
    """Yield (dotted name, room, syntax tree) of each module but the package's own `__init__`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if name != "neuron_scheduler.__init__":
            yield name, room_of(name), ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports anywhere in it: `a.b.c` of `import a.b.c` and of `from a.b import c`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module, names, level):
                yield from (f"{'.' * level}{module or ''}.{alias.name}" for alias in names)


def test_rooms_import_one_way() -> None:
    """A room imports itself and the rooms below it; only the composition root and the command line see the Config."""
    assert [
        f"{name} ({room}) imports {imported}"
        for name, room, tree in modules()
        for imported in imports(tree)
        if imported.startswith(("neuron_scheduler.", "."))
        and imported != "neuron_scheduler.__version__"
        and (imported.startswith(".") or room_of(imported) not in MAY_IMPORT[room] | {room})
    ] == []


def test_pure_rooms_need_attrs_and_the_standard_library_only() -> None:
    """What decides does not talk, wait, log, throw dice or look at the clock."""
    assert [
        f"{name} imports {imported}"
        for name, room, tree in modules()
        for imported in imports(tree)
        if room in DOMAIN and imported.split(".")[0] not in PURE_LIBRARIES | {"neuron_scheduler"}
    ] == []


def test_pure_rooms_hold_nothing_asynchronous() -> None:
    """There is no await between a decision and its assumption: the event loop is the lock."""
    assert [
        f"{name}, line {getattr(node, 'lineno', '?')}: {type(node).__name__}"
        for name, room, tree in modules()
        for node in ast.walk(tree)
        if room in DOMAIN and (isinstance(node, ASYNC) or (isinstance(node, ast.comprehension) and node.is_async))
    ] == []
