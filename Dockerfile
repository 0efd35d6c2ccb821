# The scheduler as an image: docker build --tag neuron-scheduler:0.1.0 .
#
# The first stage makes a virtual environment from the hash-locked requirements and the wheel of this source; the second
# has only this environment. It runs as an unprivileged user and needs no writable root.
FROM python:3.13-slim-trixie AS build
WORKDIR /source
COPY requirements/run.txt requirements/run.txt
RUN python -m venv --without-pip /opt/neuron-scheduler \
    && pip --python /opt/neuron-scheduler/bin/python install \
    --no-cache-dir --no-deps --only-binary :all: --require-hashes --requirement requirements/run.txt
COPY pyproject.toml README.md LICENSE* ./
COPY neuron_scheduler neuron_scheduler
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && pip --python /opt/neuron-scheduler/bin/python install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM python:3.13-slim-trixie
COPY --from=build /opt/neuron-scheduler /opt/neuron-scheduler
ENV PATH=/opt/neuron-scheduler/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 10251 10259
ENTRYPOINT ["neuron-scheduler"]
CMD ["run"]
