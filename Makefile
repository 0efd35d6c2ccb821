# `make` lists all targets. From a fresh clone only git, make and Python 3.11 or newer are needed.
PYTHON ?= python3
UV     ?= uv
ARGS   ?=
SEEDS  ?= 1000
export KUBERNETES ?=
# Compiled test files are kept: without them pytest takes twice as long to collect the tests.
export PYTHONDONTWRITEBYTECODE :=
VENV   := .venv
BIN    := $(VENV)/bin

# The image's Python: on PATH or under pyenv. It is tried, because a shim of pyenv's may lead nowhere.
IMAGE_VERSION := $(shell sed -n 's/^ARG BASE=python:\([0-9]*\.[0-9]*\).*/\1/p' Dockerfile)
IMAGE_PYTHON   = $(shell for python in python$(IMAGE_VERSION) $(HOME)/.pyenv/versions/$(IMAGE_VERSION)*/bin/python3; \
                 do "$$python" -c 'import ensurepip, venv' 2> /dev/null && echo "$$python" && break; done)

# A stamp is named after the lock that was installed last: another lock, such as another branch's, is installed over it.
stamp   = $(VENV)/.$(1)-$(shell cksum < requirements/$(1).txt | cut -d ' ' -f 1)
DEMO   := $(call stamp,demo)
DEV    := $(call stamp,dev)
AUDIT  := $(call stamp,audit)
COMMAND := $(BIN)/neuron-scheduler
PLUGIN  := $(BIN)/kubectl-neuron
LOCK    = $(UV) pip compile -q --generate-hashes --universal --python-version 3.11 --no-emit-index-url \
          --no-emit-find-links --no-header --exclude-newer '7 days'

# What `make test` runs beside Python, and what all tests do. ARGS builds them only if a chosen test has a control plane.
SERVERS  := etcd kube-apiserver
PROGRAMS := $(SERVERS) kube-controller-manager kube-scheduler kubectl helm karpenter

RELEASES := $(patsubst tests/control_plane/modules/kubernetes-%,%,$(wildcard tests/control_plane/modules/kubernetes-*))
ifneq ($(KUBERNETES),$(filter $(RELEASES),$(KUBERNETES)))
$(error KUBERNETES=$(KUBERNETES): the tests can run on $(RELEASES))
endif

.DEFAULT_GOAL := help
.PHONY: help demo picture outputs fast test test-all test-image test-here soak lint fmt control-plane browser audit audit-here lock clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO) $(COMMAND) $(PLUGIN)  ## watch pods get their Neuron devices on simulated nodes (SERVE=1: keep running for your kubectl)
	@$(BIN)/python -m sandbox $(if $(filter-out 0,$(SERVE)),--serve) $(ARGS)

picture: $(DEMO)  ## draw docs/demo.svg from a real run
	@$(BIN)/python -m sandbox --export docs/demo.svg

outputs: $(DEV)  ## write what the commands print about docs/example into README and docs
	@$(BIN)/python -m tests.support.documented_output

fast: $(DEV) $(COMMAND) $(PLUGIN)  ## run format check, lint, types, and unit tests with few examples (needs no control plane)
	@$(BIN)/python -m tests.run fast

test: $(DEV) $(COMMAND) $(PLUGIN)  ## the same, and the main job on a real kube-apiserver, which is built meanwhile (ARGS="-k lease": some tests)
	@$(if $(ARGS),BUILD="$(SERVERS)" $(BIN)/pytest $(ARGS),$(BIN)/python -m tests.run test)

test-all: $(DEV) $(COMMAND) $(PLUGIN)  ## run what `make test` leaves out: all examples, all other programs (KUBERNETES=1.35: on an older release)
	@$(if $(ARGS),BUILD="$(PROGRAMS)" $(BIN)/pytest $(ARGS),$(BIN)/python -m tests.run test-all)
	@$(if $(ARGS),,$(MAKE) --no-print-directory test-image)

test-image:  ## run the tests that need no other program in the Python of the image, if it is installed
	@$(if $(IMAGE_PYTHON),$(MAKE) --no-print-directory VENV=.venv-image PYTHON=$(IMAGE_PYTHON) test-here,\
	  echo 'Python $(IMAGE_VERSION), which the image runs, is neither on PATH nor under pyenv: no test was run in it.')

test-here: $(DEV)
	$(BIN)/pytest -m 'not control_plane and not browser and not image' --numprocesses=auto --dist=worksteal $(ARGS)

soak: $(DEV)  ## simulate SEEDS=1000 seeds, from FIRST=0 on; prints what fails, as small as it gets, and what struck
	$(BIN)/python -m tests.simulation --seeds $(or $(FIRST),0):$$(( $(or $(FIRST),0) + $(SEEDS) )) $(ARGS)

lint: $(DEV) $(COMMAND) $(PLUGIN)  ## run format check, lint and types only
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(if $(wildcard Dockerfile),$(BIN)/hadolint Dockerfile)

fmt: $(DEV)  ## format the code and fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

control-plane: $(DEV)  ## find or build etcd, Kubernetes, kubectl, helm and Karpenter for the tests (minutes the first time; WITH=kwok: kwok too)
	@$(BIN)/python -m tests.control_plane.build $(PROGRAMS) $(WITH)
	@$(BIN)/python -m tests.monitoring.engine
	@$(BIN)/python -m tests.neuron.claims.oracle

browser: $(DEV)  ## find Chromium for the tests of the page, or unpack Debian's (ten seconds the first time)
	@$(BIN)/python -m tests.browser.install

audit:  ## look for known vulnerabilities in the locked dependencies (asks PyPI, through pip-audit)
	@$(MAKE) --no-print-directory VENV=.venv-audit audit-here

audit-here: $(AUDIT)
	$(BIN)/pip-audit --strict --require-hashes --disable-pip $(foreach lock,run image dev,--requirement requirements/$(lock).txt) $(ARGS)

lock:  ## write the locks in requirements/ (needs uv; ARGS=--upgrade: newer versions)
	$(LOCK) $(ARGS) pyproject.toml -o requirements/run.txt
	$(LOCK) $(ARGS) pyproject.toml --group demo --group lint --group type --group test -o requirements/dev.txt
	$(LOCK) $(ARGS) pyproject.toml --group demo -c requirements/dev.txt --no-annotate -o requirements/demo.txt
	$(LOCK) $(ARGS) requirements/image.in -c requirements/dev.txt --no-annotate -o requirements/image.txt
	$(LOCK) $(ARGS) requirements/go.in --no-annotate -o requirements/go.txt
	$(LOCK) $(ARGS) requirements/audit.in --no-annotate -o requirements/audit.txt

clean:  ## remove the virtual environment and the tools' caches, but not the built control plane
	rm -rf $(VENV) .venv-image .venv-audit .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The commands for people, from any folder; `pip install .` and the image have those of pyproject.toml.
$(COMMAND): | $(DEMO)
	$(call command,-m neuron_scheduler)

$(PLUGIN): | $(DEMO)
	$(call command,-c "from neuron_scheduler.__main__ import kubectl; raise SystemExit(kubectl())")

define command
@printf '%s\n' '#!/bin/sh' 'PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" exec "$(abspath $(BIN))/python" $(1) "$$@"' > $@
@chmod +x $@
endef

$(DEV):
	$(call install,dev)
	@touch $(DEV) $(DEMO)

$(AUDIT):
	$(call install,audit)
	@touch $(AUDIT)

$(DEMO):
	$(call install,demo)
	@touch $(DEMO)

define install
@command -v $(PYTHON) > /dev/null || { echo 'There is no $(PYTHON): install Python 3.11 or newer, or name yours: make PYTHON=python3.12'; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "$$($(PYTHON) --version) is too old: Python 3.11 or newer is needed; name yours: make PYTHON=python3.12"; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
  { echo 'This Python cannot make virtual environments: on Debian and Ubuntu `apt install python3-venv` helps.'; exit 1; }
@echo 'installing requirements/$(1).txt into $(VENV)'
@rm -f $(VENV)/.demo-* $(VENV)/.dev-* $(VENV)/.audit-*
@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
@$(BIN)/python -m pip install --disable-pip-version-check -q --require-hashes -r requirements/$(1).txt
endef
