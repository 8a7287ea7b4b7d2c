# Thin, repeatable targets; the work is in deploy/*.sh and in the stoker command.
SHELL := /bin/bash
BIN := .venv/bin
BENCHES := schemas simulator entropy score plan agent scale pipeline latency reward cluster embed
PURE := $(BIN)/pytest -q -n 4 --dist worksteal
# Where it is set, each process compiles all that it imports: collecting the tests takes 16 s of processor time, not 6 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup lint check test test-faults test-engines demo bench lock clean

setup: ## environment, jars, model: everything the project runs on, without root
	@deploy/setup.sh

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint ## lint, types, pure tests: under two minutes
	$(PURE) -m "not service and not faults and not slow"

test: lint ## everything: all pure tests, then those with the real stack, one at a time
	$(PURE) -m "not service and not faults"
	$(BIN)/pytest -q --durations=15 -m "(service or faults) and not long"

test-faults: setup ## every process killed at random moments, ten times each; and what takes too long for `make test`
	STOKER_FAULT_ROUNDS=$${STOKER_FAULT_ROUNDS:-10} $(BIN)/pytest -q -m "faults or long" --durations=15

test-engines: setup ## contract suites and warm-ups against a real vLLM on CPU; installs it first (3 GB)
	@deploy/engines.sh
	$(BIN)/python -m tests.engines

demo: setup ## the whole path for two minutes, and a page about it; `make demo ARGS="--input ../shared/data --minutes 5"`
	$(BIN)/stoker demo --html stoker-demo.html $(ARGS)

bench: setup ## every figure beside its baseline; `make bench BENCHES="schemas simulator"` for some
	@for name in $(BENCHES); do $(BIN)/stoker bench $$name || exit; done

lock: setup ## regenerate the locks of Python packages and jars; UPGRADE=1 takes the newest
	deploy/lock.sh

clean: ## stop the local stack and remove what set-up and tests made
	-@[ ! -x $(BIN)/stoker ] || $(BIN)/stoker stack down --data
	rm -rf .venv .tools .cache .stoker .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build dist *.egg-info stoker-demo.html
