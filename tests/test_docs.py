"""Names in README, docs and manifests exist: flags, defaults, metrics, variables, files, links, commands."""

import importlib.util
import re
from collections.abc import Container, Iterable
from pathlib import Path

import yaml

from neuron_scheduler import cli
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.settings.arguments import default_text as shown_default
from neuron_scheduler.settings.config import settings
from neuron_scheduler.settings.setting import flag
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, decide
from tests.support.kustomize import YOURS

ROOT = Path(__file__).parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
MAP = ROOT / "neuron_scheduler" / "README.md"
FOLDERS = ("docs/**", "tests", "benchmarks")
PAGES = sorted([ROOT / "README.md", CONTRIBUTING, MAP, *(page for at in FOLDERS for page in ROOT.glob(f"{at}/*.md"))])
YOUR_MANIFESTS = {ROOT / "manifests" / name for name in YOURS}
MANIFESTS = sorted({*ROOT.glob("manifests/**/*.yaml")} - YOUR_MANIFESTS)
TEXTS = [*PAGES, *MANIFESTS]
PLAIN_MANIFESTS = [path for path in MANIFESTS if path.parent.name != "templates"]  # tests/test_chart.py has the chart's
README = (ROOT / "README.md").read_text()
# Flags of kubectl, helm, docker, pip and the API server; all others are our own.
OTHERS = {
    "--cpu",  # of benchmarks.placement, like the next two
    "--memory",
    "--pods",
    "--small",  # of tests.simulation
    "--always",  # of git describe, like the next two
    "--dirty",
    "--tags",
    "--find",  # of tests.mutants, like the next
    "--list",
    "--attach",  # of kubectl, like the next four
    "--dry-run",
    "--image",
    "--restart",
    "--rm",
    "--build-arg",  # of docker, like the next five
    "--device",
    "--platform",
    "--provenance",
    "--push",
    "--sbom",
    "--force-conflicts",  # of helm, like the next five
    "--install",
    "--reset-then-reuse-values",
    "--reuse-values",
    "--set",
    "--set-string",
    "--take-ownership",
    "--all",
    "--all-namespaces",
    "--cascade",
    "--cert",
    "--clusterrole",
    "--feature-gates",
    "--field-selector",
    "--filename",
    "--for",
    "--group",
    "--ignore-not-found",
    "--key",
    "--name",  # of kops
    "--namespace",
    "--prefix",
    "--raw",
    "--replicas",
    "--runtime-config",
    "--selector",
    "--server",
    "--serviceaccount",
    "--tag",
    "--tail",
    "--timeout",
    "--yes",  # of kops
    "--upgrade",  # of uv, by `make lock`
    "--leader-elect-",  # a prefix
}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def known_flags() -> set[str]:
    """Return the flags of all commands."""
    parser, commands = cli.parsers()
    return {
        option
        for command in (parser, *commands.values())
        for action in command._actions
        for option in action.option_strings
    }


def named_in(texts: Iterable[Path], pattern: str) -> set[str]:
    """Return what a pattern finds in the texts, each with its file: `docs/a.md: --flag`."""
    return {f"{named(path)}: {name}" for path in texts for name in re.findall(pattern, path.read_text(), re.MULTILINE)}


def unknown(found: Iterable[str], known: Container[str]) -> list[str]:
    """Return what is found, with its file, and is not known."""
    return sorted(each for each in found if each.partition(": ")[2] not in known)


def test_the_flags_exist() -> None:
    """Every named flag exists."""
    assert unknown(named_in(TEXTS, r"(?<![\w-])--[a-z][a-z-]+"), known_flags() | OTHERS) == []


def test_the_flags_have_the_defaults_that_the_settings_page_says() -> None:
    """Its table agrees with `--help`."""
    page = (ROOT / "docs" / "settings.md").read_text()
    rows = re.findall(r"^\| (`-.*?`) \| (.*?) \|", page, re.MULTILINE)
    fields = {flag(field.name): field for field in settings()} | {"-v": {f.name: f for f in settings()}["v"]}
    assert len(rows) > 5
    for names, default in rows:
        first = re.findall(r"`(-[a-z-]+)`", names)[0]
        field = fields[first]
        shown = field.metadata["shown"] or shown_default(field.default, field.metadata["parse"])
        assert default.replace("`", "") == shown or (first, default) == ("--kube-api-qps", "unlimited")


def exported() -> set[str]:
    """Return the names of all metrics, as a scrape has them."""
    return set(re.findall(r"^# TYPE (\S+)", Metrics().exposition()[0].decode(), re.MULTILINE))


def test_the_metrics_exist() -> None:
    """Every named metric is exported."""
    found = named_in(TEXTS, r"(?<![\w/])((?:neuron_scheduler|scheduler|rest_client|leader_election)_\w+)")
    assert unknown(found, exported()) == []


def test_the_variables_are_read() -> None:
    """The scheduler reads the variables that the manifests set."""
    code = "".join(file.read_text() for file in (ROOT / "neuron_scheduler").rglob("*.py"))
    read = set(re.findall(r"""environ(?:ment)?(?:\.get\(|\[)["'](\w+)["']""", code))
    items = [item for path in PLAIN_MANIFESTS for item in yaml.safe_load_all(path.read_text())]
    deployments = [item for item in items if isinstance(item, dict) and item.get("kind") == "Deployment"]
    containers = [each for item in deployments for each in item["spec"]["template"]["spec"]["containers"]]
    assert {variable["name"] for container in containers for variable in container.get("env", ())} <= read


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, target: str) -> bool:
    """Return whether a link of a page leads to a file, and to a heading of it."""
    path, _, anchor = target.partition("#")
    if path.startswith("http"):
        return True
    there = (page.parent / path).resolve() if path else page
    return there.exists() and (not anchor or anchor in anchors(there))


def test_the_links_lead_somewhere() -> None:
    """Each link within the repository names an existing file, and a heading of it."""
    links = [(page, target) for page in PAGES for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text())]
    assert [f"{named(page)}: {target}" for page, target in links if not leads_somewhere(page, target)] == []


def is_there(name: str) -> bool:
    """Return whether a path exists; a part in capital letters stands for any name."""
    base = ROOT / "manifests" if name.startswith("components/") else ROOT
    placeholder = "*" in name or re.search(r"/(test_)?[A-Z]+(?=[/.])", name) is not None
    is_yours = base / name in YOUR_MANIFESTS
    return placeholder or is_yours or (base / name).exists() or (base / f"{name}.py").exists()


def test_the_files_exist() -> None:
    """Every named path of this repository exists; links have a test of their own."""
    folders = "manifests|docs|benchmarks|tests|sandbox|neuron_scheduler|components"
    texts = [(path, re.sub(r"https?://\S+|\]\([^)\s]+\)", "", path.read_text())) for path in TEXTS]
    found = [(path, name) for path, text in texts for name in re.findall(rf"\b((?:{folders})/[\w./-]*\w)", text)]
    assert [f"{named(path)}: {name}" for path, name in found if not is_there(name)] == []


def paths_in(text: str) -> list[str]:
    """Return the paths of files and folders that a text has in backticks; a placeholder is a `*`."""
    quoted = re.findall(r"`([\w./*-]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    paths = [name for name in quoted if "/" in name or Path(name).suffix in {".py", ".md", ".yaml", ".toml"}]
    return [re.sub(r"(?<![A-Za-z])(NAME|KINDS?|A|B)(?![A-Za-z])", "*", path) for path in paths]


def test_the_paths_for_developers_exist() -> None:
    """Every path in backticks is a file, a module or a folder, of the repository or of the package."""
    missing = [
        f"{named(page)}: {path}"
        for page in (CONTRIBUTING, MAP)
        for path in paths_in(page.read_text())
        if not any([*base.glob(path), *base.glob(f"{path}.py")] for base in (ROOT, MAP.parent))
    ]
    assert missing == []


def section(title: str) -> str:
    """Return a section of the package's README."""
    return MAP.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_map_has_each_room() -> None:
    """The map lists exactly the folders with modules, and the modules at the top."""
    package = MAP.parent
    modules = [path.relative_to(package) for path in package.rglob("*.py") if path.stem != "__init__"]
    folders = {f"{path.parent}/" for path in modules if path.parent.name}
    rooms = folders | {path.stem for path in modules if not path.parent.name}
    listed = [room for row in re.findall(r"^\| (`.*?) \|", section("Map"), re.MULTILINE) for room in row.split()]
    assert sorted(listed) == sorted(f"`{room}`" for room in rooms)


def test_the_recipes_name_what_exists() -> None:
    """Each name in backticks that only code can have is in a module of the package or of the tests."""
    sources = "\n".join(path.read_text() for folder in (MAP.parent, ROOT / "tests") for path in folder.rglob("*.py"))
    names = re.findall(r"`(?:\w+\.)?(_?[A-Z]\w+|_[a-z]\w*|\w+_\w+)(?:\(.*?\))?`", section("Recipes"))
    assert len(names) > 30
    assert [name for name in names if name != "_total" and not re.search(rf"\b{name}\b", sources)] == []


def test_where_to_look() -> None:
    """Each row of the table names a file of the package."""
    rows = re.findall(r"^\| (?!looking for)(.*?) \| (.*) \|$", section("Where is ..."), re.MULTILINE)
    assert len(rows) > 10
    assert [looking_for for looking_for, look_in in rows if not paths_in(look_in)] == []


def test_where_a_message_is_made() -> None:
    """Each part of a quoted message, between its figures, is in a file that its row names."""
    for row in section("Where is ...").splitlines():
        quoted, _, look_in = row.removeprefix("| ").partition(" | ")
        code = "".join(
            file.read_text() for path in paths_in(look_in) for file in MAP.parent.glob(path) if file.is_file()
        )
        for message in re.findall(r'"([^"]+)"', quoted):
            parts = [part for part in re.split(r"\d+|/|\.\.\.", message) if part.strip()]
            assert [part for part in parts if part.strip(" :").lower() not in code.lower()] == [], message


def test_the_commands_exist() -> None:
    """`python -m` names an existing module, `make` a target, and `neuron-scheduler` a command."""
    modules = named_in(TEXTS, r"python -m ([\w.]+)")
    assert [each for each in sorted(modules) if importlib.util.find_spec(each.partition(": ")[2]) is None] == []
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert unknown(named_in(TEXTS, r"(?:`|^)make ([a-z-]+)"), targets) == []
    assert unknown(named_in(TEXTS, r"`neuron-scheduler ([a-z-]+)"), cli.parsers()[1]) == []


def test_the_refusal_of_the_readme_is_one() -> None:
    """A pod of four devices gets the README's sentence on such nodes."""
    shown = re.search(r"^ +(0/5 nodes are available: .*)$", README, re.MULTILINE)
    assert shown is not None
    trn1 = "trn1.32xlarge"
    nodes = [node("broken", trn1), node("full", trn1), *(node(f"cpu-{i}", labels={"a": "b"}) for i in range(3))]
    bound = [
        *(pod(f"row-{row}", devices=1, on="broken", ids=(4 * row,)) for row in range(4)),
        *(pod(f"more-{i}", devices=1, on="broken", ids=(4 * i + 1,)) for i in range(4)),
        pod("rest", devices=15, on="full", ids=range(15)),
    ]
    wanted = pod("p", devices=4, node_selector={"node.kubernetes.io/instance-type": trn1})
    refusal = decide(cluster_of(nodes, bound), wanted)
    assert isinstance(refusal, FitError)
    assert refusal.text == shown[1]
