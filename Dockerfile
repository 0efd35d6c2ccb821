# The scheduler as an image. README.md has the commands that build and push it; a test runs the steps below.
#
# The first stage makes a virtual environment from the hash-locked requirements and the wheel of this source, lists its
# packages (SBOM, CycloneDX) and collects their licences. The second stage has only these. It runs as an unprivileged
# user and needs no writable root.
# `docker buildx imagetools inspect python:3.13-slim-trixie` prints the digest of a newer base.
ARG BASE=python:3.13-slim-trixie@sha256:bb2988715db2cf7ace7b53f38f3cffbef7c7046a656bee66245eb0ed386e2e81

FROM ${BASE} AS build
WORKDIR /source
COPY requirements/run.txt requirements/image.txt requirements/
RUN python -m venv --without-pip /opt/neuron-scheduler \
    && python -m pip --python /opt/neuron-scheduler/bin/python install \
    --no-cache-dir --no-deps --only-binary :all: --require-hashes --requirement requirements/run.txt
RUN python -m venv --without-pip /build \
    && python -m pip --python /build/bin/python install \
    --no-cache-dir --no-deps --only-binary :all: --require-hashes --requirement requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY neuron_scheduler neuron_scheduler
RUN /build/bin/python -m hatchling build --target wheel --directory /wheels \
    && python -m pip --python /opt/neuron-scheduler/bin/python install --no-cache-dir --no-deps --no-index /wheels/*.whl
WORKDIR /usr/share/doc/neuron-scheduler
RUN /build/bin/cyclonedx-py environment --pyproject /source/pyproject.toml --output-reproducible \
    --output-file sbom.cdx.json /opt/neuron-scheduler/bin/python
WORKDIR /usr/share/doc/neuron-scheduler/licenses
# hadolint ignore=DL3003  # WORKDIR takes no wildcard
RUN cd /opt/neuron-scheduler/lib/python*/site-packages \
    && find . -type f -path '*.dist-info/*' \( -path '*/licenses/*' -o -name 'LICENSE*' -o -name 'NOTICE*' \) \
    -exec cp --parents --target-directory /usr/share/doc/neuron-scheduler/licenses {} +

FROM ${BASE}
COPY --from=build /opt/neuron-scheduler /opt/neuron-scheduler
COPY --from=build /usr/share/doc/neuron-scheduler /usr/share/doc/neuron-scheduler
ENV PATH=/opt/neuron-scheduler/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 10251 10259 12345
ENTRYPOINT ["neuron-scheduler"]
CMD ["run"]
# After everything that takes time, because a commit changes them. An argument that is not given leaves its label empty.
ARG BASE
ARG SOURCE
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="neuron-scheduler" \
    org.opencontainers.image.description="A topology-aware Kubernetes scheduler for AWS Inferentia and Trainium devices" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.licenses="MIT-0" \
    org.opencontainers.image.base.name="${BASE}" \
    org.opencontainers.image.source="${SOURCE}" \
    org.opencontainers.image.revision="${REVISION}"
