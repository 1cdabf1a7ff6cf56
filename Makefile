# Needs python3 >= 3.10 and make. The first target that needs it makes a virtual environment in .venv.
PYTHON ?= python3
VENV   ?= .venv
SHARED ?= ../shared
BIN    := $(VENV)/bin
RUN    := $(VENV)/.installed-run
DEV    := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help demo test lint check-all vectors bench docs light zipapp clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(RUN)  ## convert models/digits.onnx, run it on real handwritten digits, show what it says
	$(BIN)/python demo.py

test: $(DEV)  ## all tests
	$(BIN)/python -m pytest --numprocesses auto $(PYTEST_ARGS)

lint: $(DEV)  ## ruff and mypy --strict
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

check-all: lint test vectors  ## all that can be checked here

vectors: $(DEV)  ## Android's vectors, the bug reports and whole models, all of them, where $(SHARED) is there
ifneq ($(wildcard $(SHARED)/nnapi/facts.json),)
	$(BIN)/python $(SHARED)/vts/run_vectors.py $(SHARED)/vts
	$(BIN)/python $(SHARED)/vts/run_vectors.py $(SHARED)/golden
	$(BIN)/python $(SHARED)/cases/run_cases.py
	$(BIN)/python $(SHARED)/models/run_models.py
else
	@echo "skipped: $(SHARED) is not there; SHARED=PATH names another place"
endif

bench: $(DEV)  ## conversion and host inference against the peers that are installed, as ratios
	$(BIN)/python benchmarks/convert.py
	$(BIN)/python benchmarks/host.py

docs: $(RUN)  ## docs/operators.md, from the tables
	$(BIN)/python -m onnx2nnapi ops --markdown > docs/operators.part && mv docs/operators.part docs/operators.md

light: $(RUN)  ## what a phone installs, numpy and click beside it, loads, runs and inspects
	rm -rf build/light && $(BIN)/python -m venv build/light
	build/light/bin/python -m pip install --quiet --disable-pip-version-check numpy click
	build/light/bin/python -m pip install --quiet --disable-pip-version-check --no-deps .
	$(BIN)/python -m onnx2nnapi convert models/digits.onnx --quiet --output build/light/digits.nnapi
	cd build/light && bin/onnx2nnapi run digits.nnapi --runs 3 --profile && bin/onnx2nnapi inspect digits.nnapi

zipapp: $(RUN)  ## dist/onnx2nnapi-run.pyz: one file for a phone that has Python and numpy
	rm -rf build/zipapp && mkdir -p build/zipapp dist
	$(BIN)/python -m pip install --quiet --no-deps --no-compile --target build/zipapp . 'click>=8.1'
	rm -rf build/zipapp/bin
	$(BIN)/python -m zipapp build/zipapp --compress --python '/usr/bin/env python3' \
	    --main onnx2nnapi.cli:main --output dist/onnx2nnapi-run.pyz

clean:  ## remove what make made
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "$(PYTHON) must be Python 3.10 or newer; name another one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEV): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(RUN)
