# Two commands do everything on a machine with git, make, Python 3.11+ and a package index: `make demo`, `make test`.
PYTHON ?= python3
# Bytecode is kept, whatever the environment says: every worker and every program that a test starts would compile anew.
export PYTHONDONTWRITEBYTECODE :=
BIN := .venv/bin
READY := .venv/.ready
# Compiled kernels lie beside their sources; the marker says that those of these sources do.
KERNELS := .venv/.kernels
KERNEL_SOURCES := $(shell find src/headgate/planning src/headgate/matching src/headgate/grid -name '*.py')

.PHONY: help demo test test-all test-fast lint types check chaos chaos-spine chaos-machines http-calls simulate simulate-mutants \
  docs release lock pictures sbom vulnerabilities damage frozen trespass clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## three streams, eight sites, fifty subscriptions, for a minute
	"$(BIN)/headgate" demo

test: $(KERNELS) ## the suite, on two cores
	"$(BIN)/python" -m pytest --numprocesses 2 --no-loadscope-reorder -m "not long"

test-all: $(KERNELS) ## the suite and the few tests that take long
	"$(BIN)/python" -m pytest --numprocesses 2 --no-loadscope-reorder

test-fast: $(KERNELS) ## the inner loop: no Spark, no server, nothing slow
	"$(BIN)/python" -m pytest tests --numprocesses 2 -m "not spark and not nats and not live and not slow and not long"

lint: $(READY) ## ruff, and its format
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .

types: $(READY) ## mypy --strict on both distributions
	"$(BIN)/mypy"

check: lint types test ## lint, types and test

# MINUTES=5 and SEED=2 change it; PAGE=docs/reliability.md writes the table of that page.
chaos: $(READY) ## 20 minutes of kills, cuts, narrow links, moves and other plans
	"$(BIN)/python" -m headgate_studies.testing.havoc --minutes $(or $(MINUTES),20) --seed $(or $(SEED),1) $(if $(PAGE),--page $(PAGE))

chaos-spine: $(READY) ## 20 rounds of killed drivers, relays and servers
	"$(BIN)/python" -m headgate_studies.testing.chaos --rounds 20

chaos-machines: $(READY) ## five minutes of full disks, locks and taken ports
	"$(BIN)/python" -m headgate_studies.testing.machines --seed 1 --seconds 300

http-calls: $(READY) ## 10,000 calls made up from the OpenAPI document
	"$(BIN)/python" -m headgate_studies.testing.http_calls --calls 10000

# All cores; SEEDS=0:500 and MINUTES=10 bound it.
simulate: $(READY) ## seeds of the simulated world
	"$(BIN)/python" -m headgate_studies.testing.simulate --seeds "$(SEEDS)" --minutes "$(MINUTES)"

simulate-mutants: $(READY) ## planted faults of the protocol, and whether the simulator sees them
	"$(BIN)/python" -m headgate_studies.testing.simulate --mutants --table docs/simulator.md

docs: $(READY) ## docs/reference from the code, then the site in artifacts/site, offline
	"$(BIN)/python" -m headgate_studies.testing.reference docs/reference
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true "$(BIN)/mkdocs" build --strict

# Shown by default, and pushed by nobody: DO=1 commits and tags it.
release: $(READY) ## what a release of VERSION=1.2.0 would change; DO=1 makes it
	"$(BIN)/python" -m headgate_studies.testing.release "$(VERSION)" $(if $(DO),--do)

# The lock holds exact versions and hashes for every platform, and no addresses.
lock: ## exact versions and hashes of both distributions, by uv
	uv pip compile pyproject.toml studies/pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-package headgate --no-emit-index-url --no-header --no-annotate -q -o requirements.lock

# It needs Chromium, and takes three minutes. Look at every one of them.
pictures: docs ## pictures of the dashboard and of the site for the documentation
	"$(BIN)/python" -m headgate_studies.testing.dashboard pictures docs/assets/dashboard
	"$(BIN)/python" -m headgate_studies.testing.site_pictures artifacts/site docs/assets/site

sbom: $(READY) ## sbom.json: every locked distribution with its hashes, as CycloneDX
	"$(BIN)/python" -m headgate_studies.testing.bom requirements.lock > sbom.json

# It needs uv, and the network: what it cannot look up it names.
vulnerabilities: ## known vulnerabilities of what is locked, by pip-audit
	uv tool run pip-audit --strict --require-hashes --disable-pip -r requirements.lock

damage: $(READY) ## every kind of stored file with a bit flipped, a byte cut, taken away: what was said
	"$(BIN)/python" -m headgate_studies.testing.damage

frozen: $(READY) ## 100 readers over HTTP, one frozen for ten minutes: what that takes of memory
	"$(BIN)/python" -m headgate_studies.testing.http_frozen --readers 100 --seconds 631

trespass: $(READY) ## 10,000 requests by a user without the right to them
	"$(BIN)/python" -m headgate_studies.testing.trespass --requests 10000

# The marker is written last, so that an interrupted install is done again.
$(READY): requirements.lock pyproject.toml studies/pyproject.toml
	test -x "$(BIN)/python" || $(PYTHON) -m venv .venv
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e ./studies
	touch "$(READY)"

# Before two workers start, so that they do not compile the same kernels side by side.
$(KERNELS): $(READY) $(KERNEL_SOURCES)
	"$(BIN)/python" -m headgate_studies.testing.kernels
	touch "$(KERNELS)"

clean: ## remove the environment and every cache
	rm -rf .venv .headgate .mypy_cache .pytest_cache .ruff_cache
