# `make help` lists the targets. Everything runs in .venv, which scripts/bootstrap.sh makes when it is missing or out of date.
.DEFAULT_GOAL := help
.PHONY: help demo quick test test-slow ci lint docs linkcheck crash chaos soak matrix benchmarks coverage metrics configuration errors api api-tables commands coming-from benchmark-history schemas news release-notes lock sbom bootstrap clean
BIN := .venv/bin
# Tests wait for brokers, JVMs and timeouts three quarters of the time, and six workers keep two cores busy. Slow tests start
# a JVM or a group of processes each: a fourth beside them only makes the others wait.
jobs-test := 6
jobs-test-slow := 3
jobs-quick := 2
JOBS ?= $(or $(jobs-$@),4)
# Tests start hundreds of Python processes: with byte code on disk, each need not compile the package again.
export PYTHONDONTWRITEBYTECODE :=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: bootstrap ## count the words of a real text on Spark, and watch the counts grow
	@exec $(BIN)/penstock demo

PYTEST = PENSTOCK_BROKERS=$(BROKERS) exec $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --max-worker-restart 0

# The parts of `make quick`, one for each building: tests in this process, without a JVM and mostly without a broker.
core := tests/aggregations tests/application tests/config tests/dsl tests/kip28 tests/lake tests/metrics tests/plan tests/processor tests/serdes \
  tests/state tests/task $(wildcard tests/test_*.py)
broker := tests/broker
threads := tests/host/test_crashpoints.py tests/host/calls tests/host/commits tests/host/deployment tests/host/lake tests/host/measuring tests/host/storage tests/host/supervision tests/host/threads
tools := tests/house tests/tools/otel $(addprefix tests/docs/,test_contributing.py test_divergences.py test_readme.py test_snippets.py) tests/packaging tests/scripts
# Processes, simulations and waits for time-outs are too slow for it; `make test` runs them.
LATER := $(addprefix tests/broker/,groups/test_simulation.py test_bounds.py test_fuzz.py test_power.py common/test_log_limits.py test_process.py test_quotas.py) \
  tests/broker/test_transactions.py tests/task/test_taking_turns.py \
  $(addprefix tests/host/threads/,simulation test_host.py test_group.py test_group_simulation.py test_simulation.py test_workers.py)

quick: ## run 8,800 fast tests in some minutes; BUILDING=core, broker, threads or tools runs a part of them
	@./scripts/bootstrap.sh --no-java
	@PENSTOCK_EXAMPLES=20 exec $(BIN)/python -m pytest -n $(JOBS) -q \
	  -m "not kafka and not crash and not packaging and not slow and not spark and not broker" \
	  $(addprefix --ignore=,$(LATER)) $(foreach part,$(or $(BUILDING),core broker threads tools),$($(part))) $(ARGS)

test: bootstrap ## run the tests that need no real Kafka, no other package, no kill and not much time
	@PENSTOCK_EXAMPLES=$(or $(PENSTOCK_EXAMPLES),50) $(PYTEST) -m "not kafka and not crash and not packaging and not slow" $(ARGS)

test-slow: bootstrap ## run the others: on a real Kafka, of the wheel, of the oldest Spark, the slow ones and a seeded sample of the crash tests
	@$(PYTEST) -m "(kafka or crash or packaging or slow) and not long" $(ARGS)

ci: ## run .ci/run, which a change must pass: test, test-slow, lint and docs
	@exec ./.ci/run

lint: ## ruff, mypy, pyright and the contract of the layers
	@./scripts/bootstrap.sh --no-java
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

docs: ## build the documentation as a site, in build/site; a broken link is an error
	@./scripts/bootstrap.sh --no-java
	$(BIN)/python -m sphinx -W --keep-going -n -q -d build/doctrees -c docs . build/site

linkcheck: ## ask the servers of all links to other sites for their pages; needs the network
	@./scripts/bootstrap.sh --no-java
	$(BIN)/python -m sphinx -b linkcheck -q -d build/doctrees -c docs . build/linkcheck

crash: bootstrap ## run all crash tests: every kill, not a sample
	@PENSTOCK_CRASH=all exec $(BIN)/python -m pytest -m crash -o faulthandler_timeout=0 $(ARGS)

chaos: bootstrap ## strike an application with kills, stops, losses of power and changes for MINUTES=30 on BROKERS=3 of a real Kafka, by SEED=; HOST=threads: a group of instances
	@PENSTOCK_CHAOS_BROKERS=$(or $(BROKERS),3) PENSTOCK_CHAOS_SEED=$(SEED) PENSTOCK_CHAOS_MINUTES=$(or $(MINUTES),30) exec $(BIN)/python -m pytest -s tests/chaos/test_$(or $(HOST),spark).py -o faulthandler_timeout=0 $(ARGS)

soak: bootstrap ## run an application beside its broker and readers of its pages for MINUTES=30 on HOST=threads or spark; descriptors, memory and disk have to stay flat
	@PENSTOCK_SOAK_HOST=$(or $(HOST),threads) PENSTOCK_SOAK_MINUTES=$(or $(MINUTES),30) exec $(BIN)/python -m pytest -s tests/soak/test_soak.py -o faulthandler_timeout=0 $(ARGS)

matrix: bootstrap ## run the main cases on each Spark, Python and Kafka, and print the table of docs/compatibility.md
	@PYTHONPATH=. exec $(BIN)/python scripts/matrix.py $(ARGS)

benchmarks: bootstrap ## measure, and print the figures of benchmarks/README.md
	@exec $(BIN)/python benchmarks/word_count.py $(ARGS)

coverage: bootstrap ## write docs/coverage.md: what of Kafka Streams' API is there
	@exec $(BIN)/python scripts/coverage.py

metrics: bootstrap ## write the reference of docs/metrics.md: all metrics
	@exec $(BIN)/python scripts/metrics.py

configuration: bootstrap ## write the reference of docs/configuration.md: all configuration keys
	@exec $(BIN)/python scripts/configuration.py

errors: bootstrap ## write docs/errors.md: all errors, from their docstrings
	@exec $(BIN)/python scripts/errors.py

api: bootstrap ## write docs/ui-api.md: the JSON of a running application, from its types
	@exec $(BIN)/python scripts/ui_api.py

api-tables: bootstrap ## write the tables of docs/api: all public names with their first sentences
	@exec $(BIN)/python scripts/api_tables.py

commands: bootstrap ## write docs/commands-reference.md: all commands, from their help
	@exec $(BIN)/python scripts/commands.py

coming-from: bootstrap ## write the tables of docs/coming-from for Faust, Quix Streams and Spark
	@exec $(BIN)/python scripts/coming_from.py

benchmark-history: bootstrap ## write docs/benchmark-history.md and its pictures from benchmarks/history
	@exec $(BIN)/python scripts/benchmark_history.py

schemas: bootstrap ## write the schemas of Kafka's messages and its error codes, from its jar
	@PYTHONPATH=. exec $(BIN)/python scripts/wire_schemas.py $(ARGS)

lock: ## resolve the dependencies again into requirements.lock (needs uv)
	uv pip compile --quiet --universal --generate-hashes --all-extras --group dev --python-version 3.11 --no-emit-index-url --no-emit-package penstock-broker \
	  --custom-compile-command "make lock" --upgrade pyproject.toml -o requirements.lock

sbom: ## write build/sbom.json, all packages of requirements.lock as CycloneDX (needs uv)
	@mkdir -p build
	uvx --from 'cyclonedx-bom>=7,<8' cyclonedx-py requirements --pyproject pyproject.toml --mc-type library --output-reproducible \
	  -o build/sbom.json requirements.lock

news: ## show the release notes so far, from the fragments in news/
	@./scripts/bootstrap.sh --no-java
	@exec $(BIN)/towncrier build --draft

release-notes: ## move the fragments in news/ into CHANGELOG.md, under the version of the package
	@./scripts/bootstrap.sh --no-java
	@exec $(BIN)/towncrier build --yes

bootstrap:
	@./scripts/bootstrap.sh

clean: ## remove .venv and everything that was built
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .penstock
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
