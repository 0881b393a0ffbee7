# Everything runs in .venv, made from pyproject.toml with the versions of constraints.txt.
PYTHON ?= $(shell for p in python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin

MINUTES ?= 60
# After how many minutes no further slow test begins; empty: all are run.
SLOW_MINUTES ?=

# The newest versions that pyproject.toml allows, on another Python; what touches most of them, a minute of one core.
NEWEST ?= $(shell for p in python3.13 $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.13.*/bin/python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
NEWEST_TESTS := tests/test_rooms.py tests/config/test_help.py tests/nn/test_layers.py tests/run/records tests/inference

.PHONY: install demo test slow newest torture lint format docs bench

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python found; expected 3.11 or 3.12; make PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

demo: install
	$(BIN)/fdgjax demo

test: install
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0 -m 'not slow'

slow: install
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0 -m slow \
		$(if $(SLOW_MINUTES),--no-loadscope-reorder --minutes $(SLOW_MINUTES))

newest:
	@if test -z "$(NEWEST)"; then \
		echo "newest: skipped, for want of Python 3.13; make newest NEWEST=/path/to/python"; \
	else \
		$(MAKE) --no-print-directory .venv-newest/installed && \
		.venv-newest/bin/python -m pytest -m 'not slow' $(NEWEST_TESTS); \
	fi

.venv-newest/installed: pyproject.toml
	$(NEWEST) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -e . chex pytest hypothesis
	.venv-newest/bin/python -m pip list --disable-pip-version-check 2>/dev/null | grep -E '^(flax|jax|numpy|optax|orbax)'
	touch $@

# Kills, power cuts, damage and bad input on real processes; one table. Power cuts need to be root.
torture: install
	$(BIN)/python -m tests.torture --minutes $(MINUTES)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site into site/html/, from docs/*.md, README and the docstrings; a warning is an error. What it needs is installed once.
docs: .venv/docs
	$(BIN)/python -m sphinx -c docs -j auto -q -W --keep-going -d site/doctrees . site/html

.venv/docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# Beside PyTorch, which the other targets do not install.
bench: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks.round
