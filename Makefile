# Headrace. `make quickstart` runs the main job; `make test` passes the tests.
# `make help` lists the rest. Everything is installed in .venv, .tools and build.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
PYTHON  ?= python3
# One that runs: a version manager's python3.9 may be there and refuse.
PYTHON_OLD ?= $(shell python3.9 -c 'import sys; print(sys.executable)' 2>/dev/null || command -v $(PYTHON))
VENV    := .venv
PY      := $(VENV)/bin/python
BIN     := build/headrace
VERSION := $(shell cat VERSION 2>/dev/null || echo 0.1.0)
LDFLAGS := -s -w -X main.version=$(VERSION)
export CGO_ENABLED ?= 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: need
need:
	@command -v $(GO) >/dev/null || { echo "missing: Go 1.26 (https://go.dev/dl)"; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "missing: Python 3.9 or newer"; exit 1; }

.PHONY: build
build: need ## the binary, build/headrace
	@mkdir -p build
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/headrace

$(VENV)/.ready: connectors/python/pyproject.toml connectors/python/requirements-dev.txt
	@echo "python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -q -r connectors/python/requirements-dev.txt
	@$(PY) -m pip install -q --no-deps -e connectors/python
	@touch $@

.PHONY: venv
venv: need $(VENV)/.ready ## the Python environment, .venv

.PHONY: quickstart
quickstart: build venv ## the main job on embedded defaults
	@PATH="$(CURDIR)/build:$(CURDIR)/$(VENV)/bin:$$PATH" HEADRACE_PYTHON="$(CURDIR)/$(PY)" $(BIN) demo --report "$${REPORT:-build/quickstart.json}"

.PHONY: lint
lint: need venv ## gofmt, vet, ruff, mypy
	@out=$$(gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$')); [ -z "$$out" ] || { echo "gofmt: $$out"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags kafka $(KAFKA_TESTS)
	$(GO) tool staticcheck ./...
	$(VENV)/bin/ruff check connectors/python examples bench internal
	cd connectors/python && ../../$(VENV)/bin/mypy src/headrace

.PHONY: test-go
test-go: need ## unit and integration tests in Go
	$(GO) test ./...

.PHONY: test-race
test-race: need ## the cores, the shell and the agent under the race detector
	CGO_ENABLED=1 $(GO) test -race -short ./shardsvc/... ./agent/... ./internal/store/... ./master/...

.PHONY: test-python
test-python: build venv ## the Python package against the real binary
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../$(PY) -m pytest -q

.PHONY: test-python-numpy1
test-python-numpy1: build ## the same with the oldest numpy line, and PYTHON_OLD
	@test -x build/venv-numpy1/bin/pytest || { $(PYTHON_OLD) -m venv build/venv-numpy1 && \
	  build/venv-numpy1/bin/python -m pip install -q 'numpy>=1.22,<2' pytest==8.4.2 pytest-timeout==2.4.0 && \
	  build/venv-numpy1/bin/python -m pip install -q --no-deps -e connectors/python; }
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../build/venv-numpy1/bin/python -m pytest -q

.PHONY: wheel
wheel: build venv ## the Python package with the binary in it, tried in a fresh environment
	@mkdir -p connectors/python/src/headrace/bin
	@cp $(BIN) connectors/python/src/headrace/bin/headrace
	@rm -rf connectors/python/dist connectors/python/build
	@cd connectors/python && trap 'rm -rf src/headrace/bin build' EXIT && \
	  ../../$(PY) -m build --wheel --no-isolation --outdir dist . >/dev/null
	@rm -rf build/venv-wheel && $(PYTHON) -m venv build/venv-wheel
	@build/venv-wheel/bin/python -m pip install -q connectors/python/dist/*.whl
	@cd build && venv-wheel/bin/headrace version && venv-wheel/bin/python -W error -c 'import headrace; print("import headrace", headrace.__version__)'
	@ls -sh connectors/python/dist/*.whl

.PHONY: test-quickstart
test-quickstart: build venv ## the quick start with its kills, report checked
	$(PY) -m pytest -q examples

.PHONY: broker-kafka
broker-kafka: need ## a real Kafka on 127.0.0.1 until Ctrl-C; prints its address
	@$(GO) run ./internal/testbroker/broker-kafka $(ARGS)

KAFKA_TESTS := ./sources/kafka ./cmd/headrace
.PHONY: test-kafka
test-kafka: build venv ## the Kafka source on a real Kafka (needs java, and mvn once)
	@$(PY) -m pip install -q -r sources/kafka/testdata/requirements.txt
	HEADRACE_PYTHON="$(CURDIR)/$(PY)" $(GO) test -tags kafka -count=1 -timeout 400s ./sources/kafka
	HEADRACE_PYTHON="$(CURDIR)/$(PY)" $(GO) test -tags kafka -count=1 -timeout 200s ./cmd/headrace -run Kafka

KILLS ?= 40
MODEL ?= all
SEED ?= 0
.PHONY: chaos test-chaos
chaos: build venv ## kills at random, KILLS of them in a run, MODEL=shared|private|replicated, SEED
	$(GO) run ./internal/chaos/cmd --kills $(KILLS) --model $(MODEL) --seed $(SEED)
test-chaos: build venv ## a minute of it; HEADRACE_SEED runs one again
	$(GO) run ./internal/chaos/cmd --kills 10 --patience 60s

.PHONY: check
check: build lint test-go test-race ## the inner loop

.PHONY: test
test: check test-python test-quickstart test-chaos test-kafka ## everything CI runs

.PHONY: test-long
test-long: test fuzz ## what takes long

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: need ## each fuzz target for FUZZTIME
	@for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | sed 's/func //'); do \
	    echo "fuzz $$p $$f"; $(GO) test $$p -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME); done; done

.PHONY: generate
generate: venv ## api/**/*.pb.go from the proto files
	@mkdir -p .tools
	$(GO) build -o .tools/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
	PATH="$(CURDIR)/.tools:$$PATH" $(PY) -m grpc_tools.protoc -I api \
	  --go_out=. --go_opt=module=github.com/headrace/headrace \
	  --go-grpc_out=. --go-grpc_opt=module=github.com/headrace/headrace api/headrace/v1/*.proto

.PHONY: bench bench-lease bench-makespan bench-decode bench-acks
bench-lease: build ## durable lease+ack pairs per second
	$(GO) run ./bench/lease
bench-makespan: build ## time over ideal, memory, planner cost
	$(GO) run ./bench/makespan
bench-decode: build venv ## file to numpy batches, against pyarrow
	$(PY) bench/decode/bench.py
bench-acks: build venv ## the cost of acking every batch
	$(PY) bench/acks/bench.py
bench: build venv ## all of them; rewrites docs/BENCHMARKS.md
	$(PY) bench/run.py

.PHONY: clean
clean: ## build output
	rm -rf build .tools
