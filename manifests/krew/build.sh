#!/bin/sh
# Build the archive of `kubectl neuron` for krew, and its manifest with the archive's address and digest:
#   manifests/krew/build.sh URL FOLDER
# URL is where the archive will be, without its name. FOLDER gets kubectl-neuron.tar.gz and neuron.yaml. It needs Python
# with pip and access to a package index, and GNU tar or bsdtar.
set -eu

url=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"${PYTHON:-python3}" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work" "$here/../.."
cp "$here/kubectl-neuron" "$here/../../LICENSE" "$work"
chmod 755 "$work/kubectl-neuron"
(cd "$work" && tar -czf "$out/kubectl-neuron.tar.gz" -- *)
if command -v sha256sum > /dev/null; then
    digest=$(sha256sum < "$out/kubectl-neuron.tar.gz" | cut -d ' ' -f 1)
else
    digest=$(shasum -a 256 < "$out/kubectl-neuron.tar.gz" | cut -d ' ' -f 1)
fi
sed "s|URL|$url|; s|SHA256|$digest|" "$here/neuron.yaml" | grep -v '^#' > "$out/neuron.yaml"
echo "$out/kubectl-neuron.tar.gz $digest"
