# Two commands do everything on a machine with git, make, Python 3.11+ and a package index: `make demo`, `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint types check chaos-spine chaos-machines simulate simulate-mutants docs lock clean

demo: $(READY)
	"$(BIN)/headgate" demo

test: $(READY)
	"$(BIN)/python" -m pytest --numprocesses 2 --no-loadscope-reorder

lint: $(READY)
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .

types: $(READY)
	"$(BIN)/mypy"

check: lint types test

chaos-spine: $(READY)
	"$(BIN)/python" -m headgate_studies.testing.chaos --rounds 20

chaos-machines: $(READY)
	"$(BIN)/python" -m headgate_studies.testing.machines --seed 1 --seconds 300

# All cores; SEEDS=0:500 and MINUTES=10 bound it.
simulate: $(READY)
	"$(BIN)/python" -m headgate_studies.testing.simulate --seeds "$(SEEDS)" --minutes "$(MINUTES)"

simulate-mutants: $(READY)
	"$(BIN)/python" -m headgate_studies.testing.simulate --mutants

docs: $(READY)
	"$(BIN)/python" -m headgate_studies.testing.reference docs/reference

# The lock holds exact versions and hashes for every platform, and no addresses.
lock:
	uv pip compile pyproject.toml studies/pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-package headgate --no-emit-index-url --no-header --no-annotate -q -o requirements.lock

# The marker is written last, so that an interrupted install is done again.
$(READY): requirements.lock pyproject.toml studies/pyproject.toml
	test -x "$(BIN)/python" || $(PYTHON) -m venv .venv
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e ./studies
	touch "$(READY)"

clean:
	rm -rf .venv .headgate .mypy_cache .pytest_cache .ruff_cache
