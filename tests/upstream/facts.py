"""
What a release of Kubernetes has of the things that we stand in for: plugins, events, messages, gates, code.

A fact has a section (mostly a plugin), an item and a value, all of them text, so that two releases can be compared item
by item. Facts say that something changed, not what it means: somebody looks (`looked_at.toml`).
"""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.upstream import go_source
from tests.upstream.sources import Sources

FOLDER: Final = Path(__file__).parent / "facts"
Facts = dict[str, dict[str, str]]
"""The value of each item of each section."""

PLUGINS: Final = {
    "DefaultPreemption": "defaultpreemption",
    "ImageLocality": "imagelocality",
    "InterPodAffinity": "interpodaffinity",
    "NodeAffinity": "nodeaffinity",
    "NodeDeclaredFeatures": "nodedeclaredfeatures",
    "NodeName": "nodename",
    "NodePorts": "nodeports",
    "NodeResourcesFit": "noderesources",
    "NodeUnschedulable": "nodeunschedulable",
    "NodeVolumeLimits": "nodevolumelimits",
    "PodTopologySpread": "podtopologyspread",
    "PrioritySort": "queuesort",
    "SchedulingGates": "schedulinggates",
    "TaintToleration": "tainttoleration",
    "VolumeBinding": "volumebinding",
    "VolumeRestrictions": "volumerestrictions",
    "VolumeZone": "volumezone",
}
"""The plugins that we stand in for, and their folders; a new default plugin is noticed in the list of them."""
_SCHEDULER: Final = "pkg/scheduler"
_SHARED_CODE: Final = (
    ("kubernetes", f"{_SCHEDULER}/framework/preemption"),
    ("kubernetes", f"{_SCHEDULER}/framework/events.go"),
    ("component-helpers", "resource/helpers.go"),
    ("component-helpers", "nodedeclaredfeatures"),
    ("component-helpers", "scheduling/corev1"),
)
"""What else of upstream's code ours does the same as."""
_GATES_ARE_READ_IN: Final = (
    _SCHEDULER,
    "pkg/apis/core/validation/validation.go",
    "pkg/api/pod/util.go",
    "pkg/registry/core/pod/strategy.go",
    "pkg/registry/core/node/strategy.go",
)
_GATES_OF_THE_SERVER: Final = frozenset({"MutatingAdmissionPolicy", "WatchList", "ConsistentListFromCache"})
"""The generic API server's gates that our client or our manifests depend on."""
_NEVER_SEEN: Final = re.compile(r"%T|cycle-?state|unexpected object|State error|stateData", re.IGNORECASE)
"""Messages about objects of a wrong Go type, which only a fault in upstream's code could show."""


def read(sources: Sources) -> Facts:
    """Return the facts of a release from its sources."""
    facts: Facts = {"default plugins": _default_plugins(sources), "gates": _gates(sources)}
    facts["fit error"] = dict.fromkeys(sorted(_fit_error(sources)), "")
    facts["event labels"] = dict.fromkeys(sorted(_event_labels(sources)), "")
    for plugin, folder in PLUGINS.items():
        files = sources.files("kubernetes", f"{_SCHEDULER}/framework/plugins/{folder}")
        code = [go_source.code(file.read_text()) for file in files]
        facts[plugin] = _registered(code) | _messages(code) | _code(files, sources, "kubernetes")
    shared: dict[str, str] = {}
    for module, folder in _SHARED_CODE:
        shared |= _code(sources.files(module, folder), sources, module)
    preemption = sources.files("kubernetes", f"{_SCHEDULER}/framework/preemption")
    facts["DefaultPreemption"] |= _messages(go_source.code(file.read_text()) for file in preemption)
    return facts | {"shared code": shared}


def _default_plugins(sources: Sources) -> dict[str, str]:
    """Return each default plugin with its weight and the one before it, and those that only a gate enables."""
    code = go_source.code(sources.text("kubernetes", f"{_SCHEDULER}/apis/config/v1/default_plugins.go"))
    found, before = {}, "the first"
    for name, weight in re.findall(r"\{Name: names\.(\w+)(?:, Weight: ptr\.To\[int32\]\((\d+)\))?\}", code):
        if name not in found and name in go_source.block(code, "MultiPoint: v1.PluginSet{"):
            found[name], before = f"after {before}" + (f", weight {weight}" if weight else ""), name
        elif name not in found:
            found[name] = "where a gate enables it" + (f", weight {weight}" if weight else "")
    applied = go_source.functions(code, "applyFeatureGates")
    for gate, body in re.findall(r"Enabled\(features\.(\w+)\) \{\s*(.*?)\s*\}\s*(?=if|$)", "".join(applied), re.DOTALL):
        found[f"gate {gate}"] = go_source.squeezed(body)
    return found


def _gates(sources: Sources) -> dict[str, str]:
    """Return stage and default of the gates that scheduling, and validation of pods and nodes, read."""
    used = {gate for file in _GATES_ARE_READ_IN for gate in _gates_read_in(sources.files("kubernetes", file))}
    own = go_source.code(sources.text("kubernetes", "pkg/features/kube_features.go"))
    server = go_source.code(sources.text("apiserver", "pkg/features/kube_features.go"))
    found = _stages(own, sources.release) | _stages(server, sources.release)
    return {gate: found[gate] for gate in sorted(used | _GATES_OF_THE_SERVER) if gate in found}


def _gates_read_in(files: Iterable[Path]) -> set[str]:
    return {gate for file in files for gate in re.findall(r"\bfeatures\.([A-Z]\w+)", go_source.code(file.read_text()))}


def _stages(code: str, release: str) -> dict[str, str]:
    """Return the stage and default of each gate in a release: of the last of its specifications that is not later."""
    found = {}
    for gate, specifications in re.findall(r"^\t(?:\w+\.)?(\w+): \{\n(.*?)^\t\},", code, re.DOTALL | re.MULTILINE):
        pattern = r'MustParse\("([\d.]+)"\), Default: (\w+), PreRelease: featuregate\.(\w*)(, LockToDefault: true)?'
        for version, default, stage, locked in re.findall(pattern, specifications):
            if _numbers(version) <= _numbers(release):
                found[gate] = f"{stage}, {'on' if default == 'true' else 'off'}{', locked' if locked else ''}"
    return found


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _fit_error(sources: Sources) -> set[str]:
    code = go_source.code(sources.text("kubernetes", f"{_SCHEDULER}/framework/types.go"))
    bodies = [body for body in go_source.functions(code, "Error") if "NoNodeAvailableMsg" in body]
    message = re.findall(r'NoNodeAvailableMsg\s*= ("[^"\n]*")', code)
    cycle = go_source.code(sources.text("kubernetes", f"{_SCHEDULER}/schedule_one.go"))
    return {text for part in [*bodies, *message] for text in go_source.texts(part)} | go_source.messages(cycle)


def _event_labels(sources: Sources) -> set[str]:
    own = go_source.code(sources.text("kubernetes", f"{_SCHEDULER}/framework/events.go"))
    types = go_source.code(sources.text("kube-scheduler", "framework/types.go"))
    constants = re.findall(r'^\t\w+\s+(?:EventResource )?= "([^"\n]+)"$', own + types, re.MULTILINE)
    return {*constants, *re.findall(r'case \w+:\s*return "(\w+)"', types)}


def _registered(code: Iterable[str]) -> dict[str, str]:
    """Return the events that a plugin registers, with the function that gives the hint."""
    body = "".join(part for text in code for part in go_source.functions(text, "EventsToRegister"))
    pattern = r"Resource:\s*fwk\.(\w+),\s*ActionType:\s*([^,}]+?),?\s*\}(?:,\s*QueueingHintFn:\s*\w+\.(\w+))?"
    return {
        f"event {resource} {action.replace('fwk.', '').replace(' ', '')}": hint
        for resource, action, hint in re.findall(pattern, body)
    }


def _messages(code: Iterable[str]) -> dict[str, str]:
    texts = {text for part in code for text in go_source.messages(part) if not _NEVER_SEEN.search(text)}
    return {f'message "{text}"': "" for text in sorted(texts)}


def _code(files: Iterable[Path], sources: Sources, module: str) -> dict[str, str]:
    """Return a fingerprint of what each file does; comments, imports and spaces do not count."""
    return {
        f"code {file.relative_to(sources.folders[module])}": hashlib.sha256(
            go_source.squeezed(go_source.code(file.read_text())).encode()
        ).hexdigest()[:12]
        for file in files
    }


def kept() -> list[str]:
    """Return the releases whose facts are kept in this folder, the oldest first."""
    return sorted((file.stem for file in FOLDER.glob("*.json")), key=_numbers)


def recorded(release: str) -> Facts:
    """Return the facts of a release as they are kept in this folder."""
    return dict(json.loads((FOLDER / f"{release}.json").read_text())["facts"])


def recorded_version(release: str) -> str:
    """Return the patch release from which they were read."""
    return str(json.loads((FOLDER / f"{release}.json").read_text())["version"])


def record(facts: Facts, release: str, version: str) -> None:
    """Keep the facts of a release."""
    text = json.dumps({"version": version, "facts": facts}, indent=1, ensure_ascii=False, sort_keys=True)
    (FOLDER / f"{release}.json").write_text(text + "\n")
