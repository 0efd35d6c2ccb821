"""Rooms and sub-rooms import one way, and the pure ones stay pure; each violation is named."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[1] / "neuron_scheduler"
SANDBOX: Final = PACKAGE.parent / "sandbox"
TESTS: Final = Path(__file__).parent
LEAVES: Final = {"telemetry", "steps", "stopping"}  # they import no room
MODEL: Final = {"model"}
CLUSTER: Final = {"cluster", "cluster.index", "cluster.rows", "cluster.tables"}
SCHEDULING: Final = {f"scheduling.{room}" for room in ("plugins", "cycle", "queue", "preemption", "groups")}
DOMAIN: Final = {"model", "neuron", "neuron.claims"} | CLUSTER | SCHEDULING
EXPLAIN: Final = {"explain", "explain.answers", "explain.changes"}
PURE: Final = DOMAIN | EXPLAIN | {"capacity.planning", "commands.check.subjects"}
KUBE: Final = {"kube", "kube.http", "kube.objects", "kube.watch", "kube.writes"}

MAY_IMPORT: Final = {
    "model": set[str](),
    "neuron": MODEL,
    "neuron.claims": MODEL | {"neuron"},
    "cluster.index": MODEL,
    "cluster.rows": MODEL | {"neuron"},
    "cluster.tables": MODEL | {"neuron", "neuron.claims", "cluster.index", "cluster.rows"},
    "cluster": MODEL | {"neuron"} | CLUSTER,
    "scheduling": set[str](),
    "scheduling.plugins": MODEL | {"neuron"} | CLUSTER,
    "scheduling.cycle": MODEL | {"neuron", "scheduling.plugins"} | CLUSTER,
    "scheduling.queue": MODEL | {"neuron", "scheduling.plugins", "scheduling.cycle"} | CLUSTER,
    "scheduling.groups": MODEL
    | {"neuron", "scheduling.plugins", "scheduling.cycle", "scheduling.preemption"}
    | CLUSTER,
    "scheduling.preemption": MODEL | {"neuron", "scheduling.plugins", "scheduling.cycle"} | CLUSTER,
    "explain.answers": MODEL,
    "explain.changes": DOMAIN | {"explain.answers"},
    "explain": DOMAIN | EXPLAIN,
    "capacity.planning": DOMAIN,
    "telemetry": set[str](),
    "steps": set[str](),
    "kube.objects.groups": MODEL,
    "kube.objects": MODEL | LEAVES | {"kube.objects.groups"},
    "kube.http": MODEL | LEAVES | {"kube.objects"},
    "kube.watch": MODEL | LEAVES | {"kube.objects", "kube.http"},
    "kube.writes": MODEL | LEAVES | {"kube.objects", "kube.http", "kube.watch"},
    "kube": MODEL | LEAVES | {"kube.http", "kube.objects"},
    "settings": MODEL | {"telemetry", "scheduling.cycle", "scheduling.plugins"},
    "capture": DOMAIN | {"kube.http", "kube.objects", "kube.watch", "telemetry"},
    "serving": DOMAIN | {"explain", "explain.answers", "kube", "kube.http", "telemetry", "steps", "capture"},
    "commands": DOMAIN
    | {
        "app",
        "capture",
        "explain",
        "explain.answers",
        "steps",
        "stopping",
        "kube.http",
        "kube.objects",
        "settings",
        "telemetry",
    },
    "controllers": DOMAIN | LEAVES | KUBE,
    "extender": DOMAIN | LEAVES | KUBE | {"controllers", "serving"},
    "capacity": DOMAIN | LEAVES | KUBE | {"capacity.planning", "controllers", "settings"},
    "wiring": DOMAIN
    | LEAVES
    | KUBE
    | {
        "capacity",
        "settings",
        "controllers",
        "extender",
        "serving",
    },
    "app": LEAVES
    | KUBE
    | {
        "controllers",
        "explain",
        "scheduling.cycle",
        "scheduling.plugins",
        "scheduling.queue",
        "serving",
        "settings",
        "stopping",
        "wiring",
    },
    "commands.check.subjects": MODEL | {"neuron"} | CLUSTER,
    "commands.check": MODEL | LEAVES | KUBE | {"capture", "commands", "commands.check.subjects"},
    "cli": {"commands", "commands.check"} | LEAVES,
    "stopping": set[str](),
    "__main__": {"cli", "stopping"},
}
"""What each room may import beside itself: a room is a folder, or a module at the top."""
MOST_ROOMS: Final = 25
MOST_RELATIONS: Final = 92
"""Modules and folders at the top of the package, and imports between them (decision 22)."""
IMPURE: Final = {"asyncio", "logging", "os", "random", "socket", "subprocess", "threading", "time"}
PURE_LIBRARIES: Final = {"attrs", "msgspec"} | (sys.stdlib_module_names - IMPURE)
ASYNC: Final = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def room_of(name: str) -> str:
    """Return the innermost room of a module; `name` is like `neuron_scheduler.kube.http.client`."""
    words = name.split(".")[1:]
    rooms = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((room for room in rooms if room in MAY_IMPORT or (PACKAGE / room.replace(".", "/")).is_dir()), words[0])


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


def own_imports() -> Iterator[tuple[str, str, str]]:
    """Yield (importing module, its room, what it imports) for all imports of the package's own."""
    for name, room, tree in modules():
        for imported in imports(tree):
            if imported.startswith(("neuron_scheduler.", ".")) and imported != "neuron_scheduler.__version__":
                yield name, room, imported


def test_every_room_is_known() -> None:
    """A new folder is in the table."""
    assert {room for _, room, _ in modules()} <= MAY_IMPORT.keys()


def test_rooms_import_one_way() -> None:
    """A room imports itself and the rooms below it; only the composition root and the command line see the settings."""
    assert [
        f"{name} ({room}) imports {imported}"
        for name, room, imported in own_imports()
        if imported.startswith(".") or room_of(imported) not in MAY_IMPORT[room] | {room}
    ] == []


def test_the_top_of_the_package_is_within_its_budget() -> None:
    """What a reader has to hold at once: a new room, or a new relation, has to make another one needless."""
    relations = {
        (name.split(".")[1], imported.split(".")[1])
        for name, _, imported in own_imports()
        if name.split(".")[1] != imported.split(".")[1]
    }
    rooms = {name.split(".")[1] for name, _, _ in modules()}
    assert len(rooms) <= MOST_ROOMS
    assert len(relations) <= MOST_RELATIONS


def test_what_rooms_may_import_has_no_circle() -> None:
    """The table above is an order, so rooms cannot come to import each other."""
    below = {room: set(allowed) - {room} for room, allowed in MAY_IMPORT.items()}
    while bottom := {room for room, allowed in below.items() if not allowed & below.keys()}:
        below = {room: allowed for room, allowed in below.items() if room not in bottom}
    assert below == {}


def test_modules_import_without_circles() -> None:
    """Modules of one room, too, import one way."""
    known = {name for name, _, _ in modules()}
    below: dict[str, set[str]] = {name: set() for name in known}
    for name, _, imported in own_imports():
        below[name] |= {imported, imported.rpartition(".")[0]} & known - {name}
    while bottom := {name for name, imported in below.items() if not imported & below.keys()}:
        below = {name: imported for name, imported in below.items() if name not in bottom}
    assert below == {}


def test_pure_rooms_need_attrs_and_the_standard_library_only() -> None:
    """The pure rooms have no I/O, no wait, no log, no randomness and no clock."""
    assert [
        f"{name} imports {imported}"
        for name, room, tree in modules()
        for imported in imports(tree)
        if room in PURE and imported.split(".")[0] not in PURE_LIBRARIES | {"neuron_scheduler"}
    ] == []


def test_the_wall_time_is_read_from_the_time_module_only() -> None:
    """A simulation replaces `time.time` for the whole process; the methods of `datetime` cannot be replaced."""
    assert [
        f"{name}, line {node.lineno}: {ast.unparse(node)}"
        for name, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in {"now", "utcnow", "today"}
        and ast.unparse(node.value).split(".")[-1] in {"datetime", "date"}
    ] == []


def test_pure_rooms_hold_nothing_asynchronous() -> None:
    """There is no await between a decision and its assumption: the event loop is the lock."""
    assert [
        f"{name}, line {getattr(node, 'lineno', '?')}: {type(node).__name__}"
        for name, room, tree in modules()
        for node in ast.walk(tree)
        if room in PURE and (isinstance(node, ASYNC) or (isinstance(node, ast.comprehension) and node.is_async))
    ] == []


def test_the_package_and_the_sandbox_share_no_code() -> None:
    """So a mistake cannot hide on both sides, and the wheel, which has no sandbox, lacks nothing."""
    assert [
        f"{path.relative_to(PACKAGE.parent)} imports {imported}"
        for folder, other in ((PACKAGE, SANDBOX), (SANDBOX, PACKAGE))
        for path in sorted(folder.rglob("*.py"))
        for imported in imports(ast.parse(path.read_text()))
        if imported.split(".")[0] in {other.name, "tests"}
    ] == []


MIRRORS_NOTHING: Final = {
    "capture/test_documented_groups.py",
    "commands/check/subjects/test_details.py",
    "commands/check/subjects/test_findings.py",
    "commands/check/test_real_cluster.py",
    "commands/check/test_rendered.py",
    "controllers/test_identity.py",
}


def test_the_tests_of_a_room_mirror_its_modules() -> None:
    """`tests/A/test_B.py`, and `tests/A/test_B_ASPECT.py` for one aspect, test `A/B.py`; the exceptions are named."""
    strays = set()
    for path in TESTS.rglob("test_*.py"):
        folder, words = path.parent.relative_to(TESTS), path.stem.split("_")[1:]
        modules = [PACKAGE / folder / f"{'_'.join(words[:count])}.py" for count in range(1, len(words) + 1)]
        if folder.parts and (PACKAGE / folder.parts[0]).is_dir() and not any(module.exists() for module in modules):
            strays.add(path.relative_to(TESTS).as_posix())
    assert strays == MIRRORS_NOTHING


WIRE_PAIRS: Final = {"Container", "Pod", "Toleration"}
"""A structure with the API's field names, and the value of `model` that is made from it."""
NO_NAME_ALONE: Final = re.compile(
    r"_*([a-z]+ed|taken|told|said|left|gone|came|seen|kept|held|given|written|known|made|found|begun|bound|lost|sent|drawn"
    r"|shown|here|there|beside|within|above|below|near|now|then|again|ahead|away|before|after|among|inside|outside"
    r"|since|until|once|later|apart|together|alone|elsewhere|otherwise)_*"
)
"""Participles, adverbs and prepositions."""
VERBS: Final = {"feed", "proceed"}


def test_a_public_class_name_exists_once() -> None:
    """A reader who meets a name knows which class it is."""
    classes = Counter(
        node.name
        for _, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in classes.items() if count > 1} == WIRE_PAIRS


def test_no_function_is_a_bare_participle() -> None:
    """A function is a verb or a noun; a callback says in `on_...` what has happened."""
    assert [
        f"{name}, line {node.lineno}: {node.name}"
        for name, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and NO_NAME_ALONE.fullmatch(node.name)
        and node.name not in VERBS
    ] == []


def test_no_function_does_nothing() -> None:
    """A callback that is left out is None; only protocols, and stubs for the type check, have no body."""
    assert [
        f"{name}, line {function.lineno}: {function.name}"
        for name, _, tree in modules()
        for holder in ast.walk(tree)
        if isinstance(holder, ast.Module | ast.ClassDef | ast.FunctionDef) and not is_a_stub(holder)
        for function in holder.body
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and all(map(is_empty, function.body))
    ] == []


def is_a_stub(holder: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    """Return whether a class is a protocol, or all of its methods are written as `...` for the type check."""
    if not isinstance(holder, ast.ClassDef):
        return False
    methods = [each for each in holder.body if isinstance(each, ast.FunctionDef)]
    return any("Protocol" in ast.unparse(base) for base in holder.bases) or all(
        ast.unparse(each.body[-1]) == "..." for each in methods
    )


def is_empty(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing."""
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )
