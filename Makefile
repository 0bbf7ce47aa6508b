# `make demo` needs Python >= 3.11 with venv, make and a package index; nothing else.
PYTHON ?= python3
VENV := .venv
JOBS ?= 3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
export FLWR_TELEMETRY_ENABLED ?= 0
export FLWR_DISABLE_UPDATE_CHECK ?= 1
ifdef FBO_FLOWER_DATA
export FBO_FLOWER_DATA
endif

.DEFAULT_GOAL := help
PUBLISHER ?=
.PHONY: help demo install test quick golden studies kill check e2e bench docs dist hub clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed  ## tune an SVM with 20 simulated agents, federated and alone; table and picture
	@$(BIN)/fbo-flower simulate --problem digits-svm --agents 20 --trials 6 \
	  --compare ei --compare random --out runs/demo --overwrite

install: $(VENV)/.installed-dev  ## make .venv with everything that development needs

test: $(VENV)/.installed-dev  ## run all tests, studies/ too, in JOBS processes (3; some tests wait)
	@status=0; for tests in studies/tests "tests fbo_flower"; do \
	  $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m 'not deployment and not kill' $$tests || status=1; \
	done; exit $$status

quick: $(VENV)/.installed-dev  ## test every behaviour of the package, with few examples, seeds and variants
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

golden: $(VENV)/.installed-dev  ## compute the golden trials anew: half a minute; the commit says why they changed
	@PYTHONPATH=. $(BIN)/python tests/helpers/golden_trials.py $(ONLY)

studies: $(VENV)/.installed-dev  ## test studies/: papers, attacks, comparators, benchmarks
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup studies/tests

kill: $(VENV)/.installed-dev  ## kill server and agents at every write of their journals; minutes
	@$(BIN)/python -m pytest -m kill -s tests/kill tests/federated

check: $(VENV)/.installed-dev  ## ruff, mypy --strict, layering
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/test_layering.py

e2e: $(VENV)/.installed-dev  ## federations with TLS, killed processes, docs/deploy.md: about 12 minutes
	@$(BIN)/python -m pytest -m deployment tests/e2e tests/docs tests/app tests/reports

bench: $(VENV)/.installed-bench  ## measure speed, print the tables of docs/results/benchmarks.md: 20 minutes
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m studies.benchmarks.speed whole-runs
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m studies.benchmarks.speed libraries

docs: $(VENV)/.installed-docs  ## build the documentation site, build/site/index.html; broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist: $(VENV)/.installed-dev  ## build sdist and wheel into dist/ and check their metadata
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .
	@$(BIN)/python -m twine check --strict dist/*

hub: $(VENV)/.installed-dev  ## write the app for Flower Hub into build/hub/fbo-tuning; PUBLISHER=your account
	@rm -rf build/hub
	@$(BIN)/python .ci/hub_app.py build/hub/fbo-tuning --publisher "$(PUBLISHER)"

clean:  ## remove .venv, caches and build products; runs/ stays
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing fbo-flower and Flower's simulation engine into $(VENV)"
	@$(PIP) install --editable '.[simulation]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing fbo-flower with its development tools into $(VENV)"
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: pyproject.toml | $(BIN)/python
	@echo "Installing fbo-flower with the libraries that it is compared with into $(VENV)"
	@$(PIP) install --editable '.[bench]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	@echo "Installing mkdocs-material and mkdocstrings into $(VENV)"
	@$(PIP) install --editable '.[docs]'
	@touch $@

$(BIN)/python:
	@for python in "$(PYTHON)" python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    "$$python" -m venv $(VENV) && exit 0; \
	  fi; \
	done; \
	echo "make: expected Python >= 3.11 with venv as '$(PYTHON)', got $$("$(PYTHON)" --version 2>&1 | tail -n 1);" \
	  "try make PYTHON=/path/to/python3.11" >&2; \
	rm -rf $(VENV); exit 1
