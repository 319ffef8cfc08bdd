# Everything a developer types. `make` alone lists the targets.
#
# PYTHON  the interpreter for the virtual environment (3.11 to 3.13; the first that fits is found)
# VENV    where the environment is (.venv)
# PYTEST  more arguments for pytest, such as PYTEST='-k reaper'

SHELL := /bin/sh
VENV ?= .venv
PYTEST ?=
NAME ?= drain

PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
CHECKED := $(wildcard core worker controller cli bench docs examples tests)
PG15 := /usr/lib/postgresql/15/bin

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help setup lint format test kubernetes-meanwhile test-embedded test-postgresql-15 kubernetes test-operator chaos machine demo bench docs requirements clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

setup: $(STAMP) ## make the virtual environment with everything, once

# No compiler is needed: only wheels are taken. No download is unchecked: every file has its hash in the list.
$(STAMP): requirements/dev.txt pyproject.toml
	@found=''; \
	for candidate in $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11); do \
		if "$$candidate" -c '$(FITS)' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Tailrace needs Python 3.11, 3.12 or 3.13; $(if $(PYTHON),$(PYTHON),python3) is $$($(if $(PYTHON),$(PYTHON),python3) -V 2>&1 | tail -n 1)." >&2; \
		echo "Install one, or name it: make setup PYTHON=/path/to/python3.12" >&2; \
		exit 1; \
	fi; \
	if ! $(PY) -c '$(FITS)' >/dev/null 2>&1; then \
		echo "Making $(VENV) with $$($$found -V)"; \
		"$$found" -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "Installing the pinned packages (the first time takes about a minute)"
	@$(PY) -m pip install --quiet --only-binary :all: --require-hashes -r requirements/dev.txt
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $(STAMP)

lint: setup ## style, types and layers
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy $(CHECKED)
	$(VENV)/bin/lint-imports

format: setup ## format the code
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

test: kubernetes-meanwhile lint test-embedded test-postgresql-15 test-operator ## lint, then all tests on a real PostgreSQL and a real Kubernetes

# Kubernetes is built once for a machine. That begins here, at low priority and as long as this make runs, so that it is ready
# when its tests are due.
kubernetes-meanwhile: setup
	@$(PY) -m tests.rig.kube.binaries --beside $$PPID >/dev/null 2>&1 &

# TAILRACE_TEST_DSN names another server that may create databases.
test-embedded: setup
	$(PY) -m pytest -n 3 --dist worksteal -rs --ignore=tests/operator $(PYTEST)

test-postgresql-15: setup
	@if [ -n "$$TAILRACE_TEST_DSN" ]; then \
		echo "PostgreSQL 15: left out, since TAILRACE_TEST_DSN names the one server to test on"; \
	elif [ -x $(PG15)/postgres ]; then \
		$(PY) -m pytest -n 3 --dist worksteal -rs -m sql --pg 15 $(PYTEST); \
	else \
		echo "PostgreSQL 15: left out, since this machine has no $(PG15)/postgres"; \
	fi

kubernetes: setup ## build the control plane for the tests, once (TAILRACE_KUBE_BINARIES names a folder that has it)
	@$(PY) -m tests.rig.kube.binaries

test-operator: kubernetes ## the operator's tests on a real Kubernetes control plane
	$(PY) -m pytest -n 2 --dist worksteal -rs tests/operator $(PYTEST)$(if $(PYTEST), || [ $$? -eq 5 ])

chaos: setup ## every fault at full length under load; writes docs/explanation/reliability.md
	@$(PY) -m tests.chaos $(CHAOS)

machine: setup ## look for broken guarantees for long: the state machine, and whether it finds guards that were taken out
	TAILRACE_MACHINE=long $(PY) -m pytest tests/machine -p no:randomly -rs $(PYTEST)

demo: setup ## 2,000 webhook deliveries, a killed worker, and a ledger that adds up
	@$(PY) -m examples.webhooks.demo

bench: setup ## measure beside the reference: make bench NAME=drain|pickup|enqueue|held|future|head|groups|limits|dead_letters|fleet
	@$(PY) -m bench $(NAME)

docs: setup ## write the generated pages anew
	$(PY) -m docs.generate
	$(PY) -m docs.generate
	$(PY) -m tests.rig.pitfalls
	$(PY) -m tests.rig.cases
	$(PY) -m tests.rig.notes

requirements: ## pin all packages anew (needs uv)
	@{ sed -n '/^#/p' requirements/dev.txt; \
	UV_PYTHON_DOWNLOADS=never uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --upgrade --quiet; } > requirements/dev.txt.new
	@mv requirements/dev.txt.new requirements/dev.txt

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
