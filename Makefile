# `make help` lists the targets. The first target installs everything into .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
# On a shared core two OpenMP threads are slower than one.
export OMP_NUM_THREADS ?= 1
# The tests start many processes: each would compile all of lawful again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint types layers fix docs hooks benchmarks clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "lawful needs Python 3.11 or newer, found $$($(PYTHON) --version): try make PYTHON=python3.12"; exit 1; }
	@echo "Installing lawful and PyTorch into .venv (about a minute, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(INSTALLED) ## Check five broken layers, train a language model, check its laws and generate text (about a minute)
	@echo "1. Check. examples/broken_layers.py has five layers with common bugs: attention that sees the future, a reshape that"
	@echo "   mixes the batch, dropout in eval mode, an in-place update, a wrong log-determinant. They train without an error."
	@echo "   lawful check finds each bug and prints the smallest input that shows it:"
	@echo
	@$(BIN)/lawful check examples/broken_layers.py; test $$? -eq 1
	@echo
	@echo "2. Train. A small language model on the Python reference manual, with its baselines. At the end lawful checks the"
	@echo "   trained model: no output may depend on later tokens, and decoding with a cache must equal the full forward pass."
	@echo
	@$(BIN)/lawful train text
	@echo
	@echo "3. Generate. The model continues \"The statement\":"
	@echo
	@$(BIN)/lawful generate "$$(ls -td runs/text-* | head -1)" --prompt "The statement" --temperature 0.7
	@echo
	@echo "Next: open the report ($$(ls -td runs/text-* | head -1)/report.html), check your own layer"
	@echo "(docs/check-your-layer.md), or train on your own text: .venv/bin/lawful train text --data book.txt"

test: $(INSTALLED) ## Lint, types, import layers and the fast tests
	@$(MAKE) --no-print-directory lint types layers
	@echo "Tests ..."
	@$(BIN)/pytest

test-all: $(INSTALLED) ## The same, with the long tests and with checks of types at every call
	@$(MAKE) --no-print-directory lint types layers
	@echo "All tests ..."
	@$(BIN)/pytest -m "long or not long" --lawful-cases 100 --check-types

lint: $(INSTALLED) ## Style
	@echo "Lint ..."
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(INSTALLED) ## Types
	@echo "Types ..."
	@$(BIN)/pyrefly check

layers: $(INSTALLED) ## Import layers
	@echo "Import layers ..."
	@$(BIN)/lint-imports

fix: $(INSTALLED) ## Fix style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(INSTALLED) ## Run the examples of the documentation and write the outputs and pictures that changed (about ten minutes)
	@$(BIN)/python docs/update_outputs.py

hooks: $(INSTALLED) ## Run lint and types before every commit
	@$(BIN)/pre-commit install

benchmarks: $(INSTALLED) ## Run the benchmarks of benchmarks/RESULTS.md
	@$(BIN)/python benchmarks/checking.py
	@$(BIN)/python benchmarks/discovering.py
	@$(BIN)/python benchmarks/blocks.py
	@$(BIN)/python benchmarks/whitening.py
	@$(BIN)/python benchmarks/so3.py
	@$(BIN)/python benchmarks/optimizers.py
	@$(BIN)/python benchmarks/loop.py
	@$(BIN)/python benchmarks/checkpoints.py
	@$(BIN)/python benchmarks/supervised.py
	@$(BIN)/python benchmarks/mutants.py --each 4

clean: ## Remove build products
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache build dist
