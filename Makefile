# Everything a visitor or a contributor does with this repository: `make help` lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := $(shell sed -n '/^torch==/p' constraints.txt)
# Where torch comes from, if not from the package index: https://download.pytorch.org/whl/cpu is the small build.
TORCH_INDEX ?=
VERSION := $(shell sed -n 's/^version = //p' setup.cfg)
WORKERS ?= 2
# Two workers with one thread each beat one worker with two threads on models as small as the tests'. Bytecode is
# written whatever the environment says: hundreds of tests start programs, each of which would compile all modules.
# Whoever is done first takes tests over from the other.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help demo test slow newest check docs studies format bench gpu pages ecosystem conformance soak lock dist clean
.DEFAULT_GOAL := help

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed ## pretrain three tiny models on text this machine already has, teach them tasks, and report
	$(BIN)/tercet demo --overwrite

test: $(VENV)/.installed typings ## run the tests, without the slow ones
	$(PYTEST) -m "not slow"

slow: $(VENV)/.installed typings ## run the slow tests
	$(PYTEST) -m slow

newest: $(VENV)/.installed typings ## test with the newest transformers and others (NEWEST='--transformers 5.17.0': with this)
	OMP_NUM_THREADS=1 $(BIN)/python -m lab.compatibility.versions --workers $(WORKERS) $(NEWEST)

check: $(VENV)/.installed typings ## format, lint, types, tests and documentation: what a change must pass
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(PYTEST) -m "not slow"
	@$(MAKE) --no-print-directory docs

docs: $(VENV)/.installed typings ## build the documentation's site, strictly: site/index.html
	$(BIN)/python -m docs.site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m docs.site --check site
	@echo site/index.html

studies: $(VENV)/.installed ## run all studies of claims, and write their pages: docs/studies
	$(BIN)/python -m lab.studies.book

schema: $(VENV)/.installed ## write configs/recipes.schema.json, after a change of a recipe's keys
	$(BIN)/python -m docs.site.recipe_schema

format: $(VENV)/.installed ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed ## measure training, generation and the data beside stock models and collators
	$(BIN)/python -m lab.benchmarks pretraining --page docs/performance.md
	$(BIN)/python -m lab.benchmarks generation --page docs/performance.md
	$(BIN)/python -m lab.benchmarks data_pipeline --page docs/performance.md

pages: $(VENV)/.installed ## write one report of each kind from small runs, and check them in a browser: runs/pages
	OMP_NUM_THREADS=$(WORKERS) $(BIN)/python tests/reports/report_pages.py --folder runs/pages

ecosystem: $(VENV)/.installed ## try what the libraries around do with our models, and write down what works
	$(BIN)/python -m lab.compatibility.ecosystem

conformance: $(VENV)/.installed ## run transformers' own tests of every model on ours, and on stock ones
	OMP_NUM_THREADS=1 $(BIN)/python tests/conformance/conformance.py --folder .conformance

# Without installing: the links of `typings` are the package, and a line of metadata is its version.
gpu: typings ## measure training on this machine's GPU, in eight minutes and without installing (GPU=--smoke: on a CPU)
	@mkdir -p typings/tercet.dist-info
	@printf 'Metadata-Version: 2.1\nName: tercet\nVersion: %s\n' $(VERSION) > typings/tercet.dist-info/METADATA
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/typings:$(CURDIR) \
		$(PYTHON) -m lab.benchmarks gpu $(or $(GPU),--page docs/performance.md)

MINUTES ?= 60
soak: $(VENV)/.installed ## train for an hour (MINUTES=60) under random kills: nothing may come of it
	$(BIN)/python tests/soak/soak.py --minutes $(MINUTES)

lock: ## write uv.lock, and constraints.txt from it, after a change of the dependencies (needs uv)
	uv lock
	{ sed '/^#/!d' constraints.txt; uv export --quiet --all-extras --no-hashes --no-annotate --no-header --no-emit-project \
		| sed 's/ *;.*//'; } > constraints.new
	mv constraints.new constraints.txt

dist: $(VENV)/.installed ## build the wheel and the source distribution of the last commit, and check them: dist
	rm -rf build/release dist && mkdir -p build/release
	git archive HEAD | tar -x -C build/release
	$(BIN)/python -m docs.site --release build/release
	$(BIN)/python -m build --outdir dist build/release
	$(BIN)/python -m twine check --strict dist/*

clean: ## remove what was built, keep what was trained
	rm -rf $(VENV) build dist site typings *.egg-info .pytest_cache .ruff_cache .newest
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tercet needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version): try make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),-c constraints.txt) $(TORCH)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[test,docs,completion]'
	@touch $@

# The type checker cannot see that setup.cfg maps the folders below one import root: these links show it.
typings: setup.cfg tercet
	@mkdir -p typings/tercet
	@for name in tercet/* configs modeling data training pretraining finetune fewshot distill reports tools; do ln -sfn ../../$$name typings/tercet/; done
	@touch typings
