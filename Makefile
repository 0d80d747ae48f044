# Needs only python3 and make. Everything is installed into .venv, once: tools only where they are needed;
# Dask, torch and what needs them into .venv-extras.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TOOLS  := $(VENV)/.tools
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
EXTRAS := .venv-extras
OTHER  := .venv-other
DATA   ?= data
SEED   := $(or $(SEED),$(shell date +%s))
FRESH  := HYPOTHESIS_PROFILE=fresh
CHROMIUM ?= $(or $(shell command -v chromium || command -v google-chrome),/usr/bin/chromium)

.PHONY: run test test-all test-newest test-oldest test-browser test-browser-if-possible bench-explore lint docs bench bench-setup bench-others bench-utility bench-train scoreboard clean

run: $(READY)  ## train privately on digits, and see what that costs
	@echo "== lastiterate demo"
	@$(BIN)/lastiterate demo

test: lint $(EXTRAS)/.ready  ## everything but the tests marked slow
	@echo "== pytest: unit, property, doctest, layer and API tests (slow ones: make test-all)"
	@$(BIN)/python -m pytest -q -m "not slow"
	@echo "== pytest: Dask, torch, Opacus, Numba and the notebooks, in an environment that has them"
	@$(EXTRAS)/bin/python -m pytest -q -m "not slow" --extras
	@$(MAKE) --no-print-directory test-browser-if-possible

test-all: lint $(EXTRAS)/.ready  ## every test, and the branches that they cover
	@echo "== pytest: all tests, with fresh random examples (the same again: make test-all SEED=$(SEED))"
	@$(FRESH) $(BIN)/python -m pytest -q --cov --cov-report= --hypothesis-seed=$(SEED)
	@$(FRESH) $(EXTRAS)/bin/python -m pytest -q --extras --cov --cov-append --cov-report= --hypothesis-seed=$(SEED)
	@echo "== coverage of lines and branches, and the files least covered (all of them: $(BIN)/coverage report)"
	@$(BIN)/coverage report --sort=cover | sed -n '1,12p;$$p'
	@$(MAKE) --no-print-directory test-browser

# The suite with the newest, and the oldest, versions that are promised to work, Python included.
test-newest test-oldest: test-%:
	@$(call other,$*,$(PYTHON_$*),-e ".[dev]" $(PINS_$*))
	@$(OTHER)/bin/python --version
	@$(OTHER)/bin/python -m pytest -q -m "not slow"
# A third environment, for what needs other versions: made anew where it was made for something else.
# $(1) is what for, $(2) the Python, $(3) the packages.
other = test "$$(cat $(OTHER)/.made-for 2>/dev/null)" = "$(1)" -a ! pyproject.toml -nt $(OTHER)/.made-for || { \
  echo "== setting up $(OTHER) for $(1)"; rm -rf $(OTHER) && $(2) -m venv $(OTHER) && \
  $(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check $(3) && echo $(1) >$(OTHER)/.made-for; }
PYTHON_oldest = $(PYTHON)
PYTHON_newest = $(shell for version in 3.14 3.13 3.12; do \
  for python in python$$version $$HOME/.pyenv/versions/$$version.*/bin/python$$version; do \
  $$python -c '' 2>/dev/null && echo $$python && exit; done; done; echo $(PYTHON))
PINS_oldest := numpy==1.26.* scipy==1.12.* scikit-learn==1.6.* dp-accounting==0.5.0 typer==0.20.* click==8.1.* rich==13.* \
  cryptography==42.* pyarrow==15.* matplotlib==3.8.* pyparsing==3.1.* joblib==1.3.*

test-browser: $(TOOLS)  ## the page of `lastiterate explore` in Chromium
	@command -v node npm >/dev/null || { echo "needs Node.js 20 or newer, with npm"; exit 1; }
	@test -x "$(CHROMIUM)" || { echo "needs Chromium: apt-get install chromium, or CHROMIUM=where it is"; exit 1; }
	@$(GET_BROWSING) || { echo "needs playwright-core and axe-core from the npm registry"; exit 1; }
	@echo "== the page in Chromium"
	@LASTITERATE="$(BIN)/lastiterate" CHROMIUM="$(CHROMIUM)" node --test --test-reporter=dot tests/browser/*.test.mjs
GET_BROWSING := { test -d node_modules/axe-core || npm install --no-save --no-package-lock --silent playwright-core@1 axe-core@4; }

test-browser-if-possible:
	@if command -v node npm >/dev/null && test -x "$(CHROMIUM)" && $(GET_BROWSING) >/dev/null 2>&1; \
	then $(MAKE) --no-print-directory test-browser; \
	else echo "== NOT RUN: the page in a browser, which needs Chromium, Node.js and two npm packages (make test-browser)"; fi

lint: $(TOOLS)
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict src"
	@$(BIN)/mypy

docs: $(TOOLS)  ## these pages, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "== written: site/index.html (with search: $(BIN)/python -m http.server -d site)"

bench: $(TOOLS)  ## speed, as ratios to floors measured in the same run
	@$(BIN)/python benchmarks/run_all.py

bench-explore: $(TOOLS)  ## the page of `lastiterate explore`: slider to picture, and under load
	@$(GET_BROWSING)
	@LASTITERATE="$(BIN)/lastiterate" CHROMIUM="$(CHROMIUM)" node benchmarks/explore_latency.mjs
	@$(BIN)/python benchmarks/explore_load.py

scoreboard: $(TOOLS)  ## how far every bound is from the truth
	@$(BIN)/python benchmarks/scoreboard.py

# Others' packages need older versions, and this version of torch, which has a build for processors alone.
bench-setup:
	@$(call other,benchmarks,$(PYTHON),torch==2.13.0 -e ".[benchmarks]")

bench-others: bench-setup  ## what other accountants charge for the same run
	@$(OTHER)/bin/python benchmarks/against_others.py --write docs/utility.md

bench-utility: bench-setup  ## accuracy against others, with DATA=folder of the data sets
	@$(OTHER)/bin/python benchmarks/utility.py --data "$(abspath $(DATA))" --results benchmarks/utility-fresh.json

bench-train: bench-setup  ## speed of training, against bare matrix products and Opacus; DATA=folder for MNIST
	@OMP_NUM_THREADS=1 $(OTHER)/bin/python benchmarks/train_throughput.py $(if $(wildcard $(DATA)/mnist),--data "$(abspath $(DATA))")
	@OMP_NUM_THREADS=1 $(OTHER)/bin/python benchmarks/arithmetic_cost.py
	@$(OTHER)/bin/python benchmarks/memory.py

# Apart from .venv, which must do without torch; what is tested with them, conftest.py says.
# This version of torch has a build for processors alone.
$(EXTRAS)/.ready: pyproject.toml
	@echo "== setting up $(EXTRAS): Dask, torch and Opacus; some minutes, once"
	@test -x $(EXTRAS)/bin/python || $(PYTHON) -m venv $(EXTRAS)
	@$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	@$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[extras-test]"
	@touch $@

# What the library itself needs, with scikit-learn and matplotlib for the demo.
$(READY): pyproject.toml
	@echo "== setting up $(VENV) (first time, or after a change of pyproject.toml): lastiterate, its trainers"
	@echo "   and its pictures, with numpy, scipy, scikit-learn, matplotlib and what they need; a minute or so"
	@$(PYTHON) -c 'import sys; sys.exit("lastiterate needs Python 3.11 or newer; found " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e ".[sklearn,plot]"
	@touch $@

# What only those need who change the library.
$(TOOLS): pyproject.toml | $(READY)
	@echo "== adding pytest, hypothesis, mypy, ruff and mkdocs to $(VENV); a minute or so"
	@$(INSTALL) -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) $(EXTRAS) $(OTHER) node_modules lastiterate-demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
