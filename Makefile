# Every target sets up what it needs: a fresh machine needs Python 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --progress-bar on --constraint constraints.txt
export PYTHONDONTWRITEBYTECODE :=  # tests start many processes: each would compile everything again
.DEFAULT_GOAL := help
.PHONY: help demo public test test-fast test-kernels test-long lint wheel audit mutants bench docs paper clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

$(DEMO): pyproject.toml constraints.txt
	@echo "Setting up $(VENV), once: it is kept until pyproject.toml or constraints.txt change."
	$(PYTHON) -m venv $(VENV)
	@echo "Installing PyTorch, the largest package: most of the download is this one."
	$(PIP) torch
	@echo "Installing dphypo with what the demo needs: about 50 packages."
	$(PIP) --editable '.[torch,sklearn,plots]'
	@touch $@

$(STAMP): $(DEMO)
	@echo "Installing Optuna, the executors, the documentation and the test tools: about 120 packages more."
	$(PIP) --editable '.[torch,jax,transformers,sklearn,optuna,postgres,sign,plots,dask,ray,submitit,docs,dev]'
	@touch $@

demo: $(DEMO)  ## tune a private model on the handwritten digits; half a minute once installed
	$(BIN)/python examples/digits.py --folder demo

test: $(STAMP)  ## the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(OPTIONS)

FAST := accounting band laws mechanisms noise samplers space study
test-fast: $(STAMP)  ## the mathematics and studies: under a minute, for the inner loop
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(FAST:%=tests/%) $(OPTIONS)

test-kernels: $(STAMP)  ## the kernels of a GPU on this CPU, in Triton's interpreter; downloads 300 MB, once
	test -d $(VENV)/triton || $(PIP) --no-deps --target $(VENV)/triton triton==3.9.0
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/$(VENV)/triton $(BIN)/python -m pytest tests/engine/test_engine_device.py $(OPTIONS)

public: $(STAMP)
	-$(BIN)/python examples/public_files.py

test-long: $(STAMP) public  ## the long oracle, crash and statistical checks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(OPTIONS)

lint: $(STAMP)  ## ruff, ruff format, mypy --strict and the levels of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports

wheel: $(STAMP)  ## build a wheel into dist/; pip install dist/dphypo-*.whl needs no repository
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

audit: $(STAMP)  ## attack searches, plans and training by experiment; under twenty minutes
	$(BIN)/python -m benchmarks.audit

mutants: $(STAMP)  ## apply every wrong implementation to a copy; the tests must catch each of them
	PYTHONPATH=tests $(BIN)/python -m mutants.run -o tests/mutants/TABLE.md

bench: $(STAMP)  ## speed and tightness, as ratios against named peers
	$(BIN)/python -m benchmarks

docs: $(STAMP) public  ## the documentation site, tutorials executed: docs/_build/html/index.html; a few minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/check_site.py docs/_build/html

paper: $(STAMP)  ## every table and figure of the paper, from the committed landscapes
	$(BIN)/python -m paper all

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
