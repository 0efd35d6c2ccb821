"""
Pin a release of Kubernetes: `python -m tests.control_plane.pin 1.38`, or `1.38.1` for a patch release.

Writes `modules/kubernetes-1.38` (go.mod and go.sum) for the newest patch that the Go module proxy lists. Kubernetes
replaces its staging modules by folders of its own tree, so the module here names the published version of each.
Compiles nothing: `make control-plane KUBERNETES=1.38` does.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.control_plane.binaries import MODULES
from tests.control_plane.build import go_environment

PROGRAMS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
KUBERNETES: Final = "k8s.io/kubernetes"
_REPLACED: Final = (
    "// Kubernetes replaces its staging modules by folders of its own tree, which a dependent module does not inherit."
)


def main() -> int:
    """Write the module of one release."""
    parser = argparse.ArgumentParser(prog="python -m tests.control_plane.pin", description=__doc__)
    parser.add_argument("release", metavar="RELEASE", help="such as 1.38, or 1.38.1")
    release = parser.parse_args().release
    if not re.fullmatch(r"1\.\d+(\.\d+)?", release):
        parser.error(f"{release} is no release of Kubernetes")
    version = f"v{release}" if release.count(".") > 1 else newest_patch(release)
    folder = MODULES / f"kubernetes-{version.removeprefix('v').rpartition('.')[0]}"
    folder.mkdir(exist_ok=True)
    (folder / "go.sum").unlink(missing_ok=True)
    upstream = json.loads(_go("mod", "download", "-json", f"{KUBERNETES}@{version}"))["GoMod"]
    (folder / "go.mod").write_text(go_mod(Path(upstream).read_text(), version))
    subprocess.run([go_environment()["GO"], "mod", "tidy"], cwd=folder, env=_environment(), check=True)
    sys.stdout.write(f"{folder}: Kubernetes {version}\n")
    return 0


def newest_patch(release: str) -> str:
    """
    Return the newest patch, like `v1.38.2`, of a minor release that the Go module proxy lists.

    Raises:
        SystemExit: it lists none.
    """
    listed = _go("list", "-m", "-versions", KUBERNETES).split()
    patches = [
        int(found[1]) for version in listed if (found := re.fullmatch(rf"v{re.escape(release)}\.(\d+)", version))
    ]
    if not patches:
        raise SystemExit(f"the Go module proxy lists no patch release of Kubernetes {release}")
    return f"v{release}.{max(patches)}"


def go_mod(upstream: str, version: str) -> str:
    """Return the go.mod that builds our programs, from upstream's own and its version."""
    staging = sorted(set(re.findall(r"(k8s\.io/[a-z0-9-]+) => \./staging", upstream)))
    published = version.replace("v1.", "v0.", 1)
    directives = re.findall(r"^(?:go|godebug) .*$", upstream, re.MULTILINE)
    return "\n\n".join(
        [
            "module neuron-scheduler.test/kubernetes",
            *directives,
            "\n".join(["tool (", *(f"\t{KUBERNETES}/cmd/{program}" for program in PROGRAMS), ")"]),
            f"require {KUBERNETES} {version}",
            "\n".join([_REPLACED, "replace (", *(f"\t{name} => {name} {published}" for name in staging), ")\n"]),
        ]
    )


def _environment() -> dict[str, str]:
    return go_environment() | {"GOFLAGS": "-mod=mod"}


def _go(*arguments: str) -> str:
    environment = _environment()
    command = [environment["GO"], *arguments]
    return subprocess.run(command, cwd=MODULES, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
