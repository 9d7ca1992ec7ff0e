# `make demo` and `make test` need Python 3.11 or later and a package registry; nothing else.
# Set-up goes into .venv; PYTHON=... names an interpreter, ARGS=... adds arguments.

SHELL := /bin/bash
VENV := .venv/bin
PYTEST := $(VENV)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder
# Whole files to a process: the snippets of one page of the docs build on each other. In the order of
# tools/read_late.py, which begins with the slow ones; xdist's own begins with those of most tests.
# Four test processes on two cores: half of their time they wait, for a server or a window to close.
# A BLAS with threads of its own would only get in their way.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
PRODUCT := tests src systems sdk tools docs README.md
LAB := tests/lab lab benchmarks
# Folders of `make quick`: with all others, reading the tests alone takes half a minute.
QUICK := $(foreach floor,errors wire spec stats features policies rewards ope testing registry, \
  src/steersman/$(floor)) $(foreach floor,wire spec stats features policies rewards ope testing \
  registry rollouts db repository,tests/$(floor))
# Many tests start programs. Containers often tell Python to keep no compiled files; every program would
# then compile all of this project once more, a fifth of a second each.
export PYTHONDONTWRITEBYTECODE :=
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help demo up test test-lab quick nightly check format bench lock clean

help:  ## what can be made
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /make \1\t/' | expand -t 14

demo: ## set up .venv, then replay real requests while three policies learn, over the real service
	@tools/install core demo
	@$(VENV)/steersman demo assistant $(ARGS)

up: ## set up .venv, then run everything with a sample tenant and key, until Ctrl-C
	@tools/install core data
	@exec $(VENV)/steersman up $(ARGS)

test: ## the tests of product, client and systems (10 to 25 minutes on two cores)
	@tools/install dev rag
	@$(PYTEST) $(if $(ARGS),$(ARGS),$(PRODUCT) --ignore=tests/lab)

test-lab: ## the tests of the lab and of the benchmarks
	@tools/install dev rag
	@$(PYTEST) $(if $(ARGS),$(ARGS),$(LAB))

quick: ## the tests of the pure floors and the registry that take a moment and need no server (a minute)
	@tools/install dev rag
	@$(PYTEST) -n 2 -m "not slow and not server" $(if $(ARGS),$(ARGS),$(QUICK))

nightly: ## long tests, whole demos, 300 mutants of the pure packages, small benchmarks (hours)
	@tools/install dev demo rag bench
	@tools/install ray
	@tools/torch
	@status=0; export STEERSMAN_NIGHTLY=1; \
	echo "== long tests"; \
	$(PYTEST) -m nightly $(PRODUCT) --ignore=tests/lab || status=1; \
	$(VENV)/python -m pytest tests/faults/test_two_tenants.py || status=1; \
	for system in assistant interrogator; do \
	  echo "== demo $$system"; $(VENV)/steersman demo $$system || status=1; \
	done; \
	echo "== mutants"; $(VENV)/python -m tools.mutants $(ARGS) || status=1; \
	echo "== benchmarks"; $(VENV)/python -m benchmarks --quick || status=1; \
	exit $$status

check: ## lint, format, types, floors, sizes, docs, language (under a minute); all run, any may fail
	@tools/install dev rag
	@status=0; \
	for gate in "ruff check ." "ruff format --check ." mypy "lint-imports --no-cache" \
	  "python -m tools.sizes" "python -m tools.docs_gate" "python -m tools.plain_language" \
	  "python -m tools.sql_gate"; do \
	  echo "== $$gate"; $(VENV)/$$gate || status=1; \
	done; exit $$status

format: ## rewrite the sources as `make check` wants them
	@tools/install dev rag
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

bench: ## every benchmark with its peers; rewrites docs/BENCHMARKS.md and docs/benchmarks
	@tools/install core bench rag
	$(VENV)/python -m benchmarks $(ARGS)

lock: ## resolve requirements/*.lock again (UPGRADE=--upgrade for new versions)
	@tools/relock $(UPGRADE)

clean: ## forget .venv and all caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
