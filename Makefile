# Needs only python3 and make. Everything is installed into .venv, once.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: run test test-all lint bench clean

run: $(READY)  ## account for the README's example run
	@echo "== the README's example: examples/shuffled_logistic_regression.py"
	@$(BIN)/python examples/shuffled_logistic_regression.py

test: lint  ## everything but the tests marked slow
	@echo "== pytest: unit, property, doctest, layer and API tests (slow ones: make test-all)"
	@$(BIN)/python -m pytest -q -m "not slow"

test-all: lint
	@echo "== pytest: all tests"
	@$(BIN)/python -m pytest -q

lint: $(READY)
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict src"
	@$(BIN)/mypy

bench: $(READY)  ## speed, as ratios to floors measured in the same run
	@$(BIN)/python benchmarks/run_all.py

$(READY): pyproject.toml
	@echo "== setting up $(VENV) (first time, or after a change of pyproject.toml)"
	@$(PYTHON) -c 'import sys; sys.exit("lastiterate needs Python 3.11 or newer; found " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
