# Everything a contributor runs. `make help` lists the targets; each prepares the virtual environment first.

# Nothing here needs a newer GNU make than 3.81, which macOS ships.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
# The interpreter that makes the virtual environment; empty: the first of these that is new enough.
PYTHON ?=
CANDIDATES := python3 python3.13 python3.12 python3.11 python3.14
# Anything more for the programs: make test TEST_ARGS='-k masking -x'
TEST_ARGS ?=
# Tests at once: many of them wait more than they work.
WORKERS ?= 4
DEMO_ARGS ?=
CRASH_ARGS ?=
SCALE_ARGS ?=
FAIRNESS_ARGS ?=
BENCH_ARGS ?=

# One list for making the lock and for checking it. An existing output file keeps its pins as far as they still fit.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --group dev \
	--no-emit-package outbox-relay --custom-compile-command "make lock" pyproject.toml
# What goes into the images, by what the lock above says; compose/image/ holds a lock for each step of their build.
IMAGE_LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --constraint requirements.lock \
	--no-emit-package outbox-relay --custom-compile-command "make lock"
IMAGE_EXTRAS := --extra relay --extra consumer --extra encryption --extra telemetry
define image-locks
$(IMAGE_LOCK) --group build --output-file $(1)/build.lock && \
$(IMAGE_LOCK) $(IMAGE_EXTRAS) pyproject.toml --output-file $(1)/runtime.lock && \
$(IMAGE_LOCK) $(IMAGE_EXTRAS) --extra demo pyproject.toml --output-file $(1)/example.lock
endef
# The same for the environment in which the peers are measured. Its group is in no other lock.
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.installed
BENCH_LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras \
	--group bench --no-emit-package outbox-relay --custom-compile-command "make bench-lock" pyproject.toml

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(READY) ## Make the virtual environment from the lock file

$(READY): requirements.lock pyproject.toml
	@python=""; \
	for candidate in $(or $(PYTHON),$(CANDIDATES)); do \
		if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			python="$$candidate"; break; \
		fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "outbox-relay needs Python 3.11 or newer; tried: $(or $(PYTHON),$(CANDIDATES))." >&2; \
		echo "Install one, or name it: make venv PYTHON=/path/to/python3.12" >&2; \
		exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip' 2>/dev/null; then \
		echo "$$python lacks the venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: demo
demo: $(READY) ## Run the worked example for real: crash a consumer, restart the broker, count
	@$(BIN)/outbox demo $(DEMO_ARGS)

.PHONY: test
test: $(READY) ## Run the tests; TEST_ARGS goes to pytest
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TEST_ARGS)

# Debian's package without its service; nothing else has these programs for tests. They are found there by the tests.
PROMETHEUS := $(VENV)/prometheus
.PHONY: promtool
promtool: $(PROMETHEUS)/usr/bin/promtool ## Fetch Prometheus's programs for the tests of alerts and dashboards (Debian, Ubuntu)

$(PROMETHEUS)/usr/bin/promtool: $(READY)
	@command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "needs apt-get and dpkg" >&2; exit 1; }
	@mkdir -p $(PROMETHEUS) && cd $(PROMETHEUS) && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb

.PHONY: soak
soak: $(READY) ## Run the tests that take minutes each: ten years of schedules under kills, a job that outlives the broker's patience, …
	@$(BIN)/python -m pytest -m soak tests/consumer/test_soak.py tests/relay/test_ten_years.py tests/outbox/schedules tests/outbox/policy $(TEST_ARGS)

.PHONY: check
check: $(READY) lint types lock-check ## Lint, formatting, types, import layers, lock file

.PHONY: lint
lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "run: make fmt" >&2; exit 1; }
	@$(BIN)/lint-imports --no-logo

.PHONY: types
types: $(READY)
	@$(BIN)/mypy

# Offline, nobody can tell what would be resolved; then the check says so and passes.
.PHONY: lock-check
lock-check: $(READY)
	@fresh="$$(mktemp -d)"; trap 'rm -rf "$$fresh"' EXIT; \
	cp requirements.lock compose/image/*.lock "$$fresh"; \
	if ! { $(LOCK) --output-file "$$fresh/requirements.lock" && $(call image-locks,$$fresh); } >/dev/null 2>&1; then \
		echo "The lock files were not checked: they can't be resolved here and now."; \
	elif ! cmp -s requirements.lock "$$fresh/requirements.lock"; then \
		echo "requirements.lock doesn't fit pyproject.toml; run: make lock" >&2; \
		exit 1; \
	fi; \
	for lock in build runtime example; do \
		if ! cmp -s "compose/image/$$lock.lock" "$$fresh/$$lock.lock"; then \
			echo "compose/image/$$lock.lock doesn't fit requirements.lock; run: make lock" >&2; \
			exit 1; \
		fi; \
	done

.PHONY: crash
crash: $(READY) ## Kill and pause real processes in every crash window, then count
	@PYTHONPATH=tests $(BIN)/python -m crash $(CRASH_ARGS)

.PHONY: scale
scale: $(READY) ## Read a million ended jobs, claim beside their purge, release from a million waiting, scrape their figures, against bounds (eight minutes, 4 GB)
	@PYTHONPATH=tests $(BIN)/python -m scale $(SCALE_ARGS)

.PHONY: fairness
fairness: $(READY) ## Measure waits, shares and limits on real servers against their bounds (eight minutes)
	@PYTHONPATH=tests $(BIN)/python -m fairness $(FAIRNESS_ARGS)

.PHONY: rehearse
rehearse: $(READY) ## Make the trouble of each runbook on real servers, and follow its page to the end (four minutes)
	@PYTHONPATH=tests $(BIN)/python -m rehearse $(REHEARSE_ARGS)

.PHONY: secrets
secrets: $(READY) ## Run all tests, and search everything that comes out of them for the secrets that they plant
	@PYTHONPATH=tests $(BIN)/python -m pytest -p planted.watch -n $(WORKERS) --dist worksteal $(TEST_ARGS)

# Each writes its figures into docs/ and ends with 1 if a must is missed. BENCH_ARGS='--quick' tries one out.
.PHONY: bench
bench: $(READY) ## Measure this project alone, in about three minutes
	@$(BIN)/python bench/run.py ours $(BENCH_ARGS)

.PHONY: bench-scale
bench-scale: $(READY) ## Measure with a million jobs waiting and ten million finished (half an hour, 10 GB)
	@$(BIN)/python bench/run.py scale $(BENCH_ARGS)

.PHONY: bench-peers
bench-peers: $(BENCH_READY) ## Measure this project and its peers side by side (an hour)
	@$(BENCH_VENV)/bin/python bench/run.py peers $(BENCH_ARGS)

.PHONY: bench-horizon
bench-horizon: $(BENCH_READY) ## Measure while another session holds an old snapshot (half an hour)
	@$(BENCH_VENV)/bin/python bench/run.py horizon $(BENCH_ARGS)

$(BENCH_READY): requirements-bench.lock pyproject.toml $(READY)
	@echo "making $(BENCH_VENV)"
	@$(BIN)/python -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements-bench.lock
	@$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: bench-lock
bench-lock: $(READY) ## Resolve the peers' latest releases anew into requirements-bench.lock
	@$(BENCH_LOCK) --upgrade --output-file requirements-bench.lock

.PHONY: lock
lock: $(READY) ## Resolve the dependencies anew into requirements.lock
	@$(LOCK) --upgrade --output-file requirements.lock
	@$(call image-locks,compose/image)

.PHONY: fmt
fmt: $(READY) ## Format the code and apply the safe fixes
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

.PHONY: clean
clean: ## Remove the virtual environment, builds and caches
	@rm -rf $(VENV) $(BENCH_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .run
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
