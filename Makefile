# `make help` lists the targets. Everything is installed into .venv by the first target that needs it.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
# Two threads that wait for a core they cannot get are slower than one.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint types arrows fix hooks benchmarks clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "lawful wants Python 3.11 or newer: $$($(PYTHON) --version) found; try make PYTHON=python3.12"; exit 1; }
	@echo "Making .venv and installing lawful with PyTorch (about a minute, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(INSTALLED) ## Check a few broken layers, then train a language model, check its laws and let it write (about a minute)
	@echo "Checking the claims of examples/broken_layers.py, none of which is kept (about 5 seconds) ..."
	@$(BIN)/lawful check examples/broken_layers.py; test $$? -eq 1
	@echo
	@echo "Training a language model on the reference that ships with Python, and checking the laws of what was trained ..."
	@$(BIN)/lawful train text
	@echo
	@echo "What it writes after \"The statement\":"
	@$(BIN)/lawful sample "$$(ls -td runs/text-* | head -1)" --prompt "The statement" --temperature 0.7

test: $(INSTALLED) ## Lint, types, import arrows and the fast tests (about 15 minutes on two cores)
	@$(MAKE) --no-print-directory lint types arrows
	@echo "Tests (about 14 minutes on two cores) ..."
	@$(BIN)/pytest

test-all: $(INSTALLED) ## The same with the long tests
	@$(MAKE) --no-print-directory lint types arrows
	@echo "All tests, the long ones too ..."
	@$(BIN)/pytest -m "long or not long" --lawful-cases 100

lint: $(INSTALLED) ## Style
	@echo "Lint ..."
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(INSTALLED) ## Types
	@echo "Types ..."
	@$(BIN)/pyrefly check

arrows: $(INSTALLED) ## Who imports whom
	@echo "Import arrows ..."
	@$(BIN)/lint-imports

fix: $(INSTALLED) ## Repair what the linter can repair
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

hooks: $(INSTALLED) ## Run lint and types before every commit
	@$(BIN)/pre-commit install

benchmarks: $(INSTALLED) ## Measure, and print what benchmarks/RESULTS.md records
	@$(BIN)/python benchmarks/checking.py
	@$(BIN)/python benchmarks/discovering.py
	@$(BIN)/python benchmarks/blocks.py
	@$(BIN)/python benchmarks/whitening.py
	@$(BIN)/python benchmarks/so3.py
	@$(BIN)/python benchmarks/optimizers.py
	@$(BIN)/python benchmarks/loop.py
	@$(BIN)/python benchmarks/supervised.py
	@$(BIN)/python benchmarks/mutants.py --each 4

clean: ## Remove what the targets made
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache build dist
