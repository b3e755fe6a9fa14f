# Headrace. `make quickstart` runs the main job; `make test` passes the tests.
# `make help` lists the rest. Everything is installed in .venv, .tools and build.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
PYTHON  ?= python3
# One that runs: a version manager's python3.10 may be there and refuse, though it has one.
PYTHON_OLD ?= $(shell for python in python3.10 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.10.*/bin/python $(PYTHON); do \
  "$$python" -c 'import sys; print(sys.executable)' 2>/dev/null && break; done)
VENV    := .venv
PY      := $(VENV)/bin/python
BIN     := build/headrace
VERSION := $(shell cat VERSION 2>/dev/null || echo 0.1.0)
LDFLAGS := -s -w -X main.version=$(VERSION)
export CGO_ENABLED ?= 0
# What Go builds does not depend on the folder, so a second clone builds nothing again.
export GOFLAGS ?= -trimpath
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# If it is set, each process compiles all of torch, or of TensorFlow, again: 10 s.
unexport PYTHONDONTWRITEBYTECODE
# If it is set, print() writes each of its arguments by itself, and what another thread of a
# test's program logs may come between them.
unexport PYTHONUNBUFFERED

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: need
need: ## what this machine lacks, and what to do about it
	@.ci/need "$(GO)" "$(PYTHON)" $(if $(filter need,$(MAKECMDGOALS)),--all)

.PHONY: build
build: need ## the binary, build/headrace
	@mkdir -p build
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/headrace

$(VENV)/.ready: connectors/python/pyproject.toml connectors/python/requirements-dev.txt
	@echo "python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -q --no-compile -r connectors/python/requirements-dev.txt
	@$(PY) -m pip install -q --no-compile --no-deps -e connectors/python
	@touch $@

.PHONY: venv
venv: need $(VENV)/.ready ## the Python environment, .venv

SOURCE ?= files
.PHONY: quickstart quickstart-needs-files quickstart-needs-kafka quickstart-needs-pulsar quickstart-needs-rocketmq quickstart-needs-brokers
quickstart-needs-files quickstart-needs-rocketmq:
quickstart-needs-kafka: venv
	@$(PY) -m pip install -q -r sources/kafka/testdata/requirements.txt
quickstart-needs-pulsar: venv
	@$(PY) -m pip install -q -r sources/pulsar/testdata/requirements.txt
quickstart-needs-brokers: venv
	@$(PY) -m pip install -q --no-compile -r sources/kafka/testdata/requirements.txt -r sources/pulsar/testdata/requirements.txt
quickstart: build venv quickstart-needs-$(SOURCE) ## the main job on embedded defaults; SOURCE=kafka|pulsar|rocketmq: on a real broker
	@PATH="$(CURDIR)/build:$(CURDIR)/$(VENV)/bin:$$PATH" HEADRACE_PYTHON="$(CURDIR)/$(PY)" $(BIN) demo --source $(SOURCE) --report "$${REPORT:-build/quickstart$(patsubst -files,,-$(SOURCE)).json}"

# No tag takes a file away, so one run with all of them reads every file. go test need not
# vet once more.
ALL_TAGS := -tags kafka,pulsar,rocketmq,s3,planted
.PHONY: lint
lint: need venv ## gofmt, vet, ruff, mypy
	@out=$$(gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$')); [ -z "$$out" ] || { echo "gofmt: $$out"; exit 1; }
	$(GO) vet $(ALL_TAGS) ./...
	$(GO) tool staticcheck $(ALL_TAGS) ./...
	$(VENV)/bin/ruff check connectors examples bench internal
	cd connectors/python && ../../$(VENV)/bin/mypy src/headrace

# The packages under the race detector. Of shardsvc and internal/store it plays less (-short).
RACE  := ./shardsvc/... ./agent/... ./internal/store/... ./master/...
# What takes minutes: those two whole, and jobs of the whole binary.
WHOLE := ./shardsvc ./internal/store ./cmd/headrace
.PHONY: test-monitoring
test-monitoring: build ## the alerts and the dashboard of docs/monitoring, with Prometheus' own parser and a real /metrics
	cd internal/proof/monitoring && $(GO) vet . && $(GO) test -count=1 -vet=off .
.PHONY: test-go test-go-unit test-go-whole
test-go: need venv ## unit and integration tests in Go (some train in Python): test-go-unit, test-go-whole and, without the race detector, test-race
	$(GO) test -timeout 30m ./...
test-go-unit: need venv ## the packages that neither test-go-whole nor test-race plays
	$(GO) test $(COUNT) -vet=off -timeout 30m $$($(GO) list ./... | grep -vxF "$$($(GO) list $(RACE) $(WHOLE))")
test-go-whole: need venv ## what takes minutes: 1,500 random worlds of each check of the core, a store that loses power at every write, the binary's own tests
	$(GO) test -count=1 -vet=off -timeout 30m $(WHOLE)

.PHONY: test-race
test-race: need ## the cores, the shell and the agent under the race detector
	CGO_ENABLED=1 $(GO) test $(COUNT) -vet=off -race -short -timeout 30m $(RACE)

PYTHON_KAFKA := tests/integration/test_bit_exact_kafka.py
PYTHON_S3 := tests/integration/test_s3.py tests/integration/test_s3_checkpoints.py tests/integration/test_s3_deltas.py tests/integration/test_s3_remember.py tests/integration/test_s3_retain.py tests/integration/test_s3_sharded.py
# pyarrow needs a newer numpy than the oldest one.
PYTHON_ARROW := tests/integration/test_parquet.py --ignore=tests/integration/test_files_page.py --ignore=tests/integration/test_bad_records_page.py --ignore=tests/integration/test_path_columns.py --ignore=tests/integration/test_avro_files.py --ignore=tests/integration/test_protobuf_files.py
.PHONY: test-python
test-python: build venv ## the Python package against the real binary, three tests at once: they mostly wait
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../$(PY) -m pytest -q -n 3 --ignore=$(PYTHON_KAFKA) $(addprefix --ignore=,$(PYTHON_S3))

.PHONY: test-rounds
test-rounds: build venv ## rounds of a synchronous group, with deaths, two tests at once: they mostly wait
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../$(PY) -m pytest -q -n 2 tests/integration/check_rounds.py tests/integration/check_drop.py

.PHONY: quickstart-flash
quickstart-flash: build venv ## a trainer with checkpoints in memory beside one without, both killed every ten seconds; two minutes
	@$(PY) examples/flash/quickstart.py --report build/quickstart-flash.json

.PHONY: test-flash test-flash-long
TESTS_FLASH := tests/integration/check_memory*.py tests/integration/check_replicas*.py
# What takes long, proves once more in another way what a shorter test proves, or needs root:
# a tmpfs of its own, network namespaces.
FLASH_LONG := check_replicas_network or full_tmpfs or has_no_room_is_passed_over or (every_point and private) or (run_writes and replicated-1) or (behind_the_newest and private)
test-flash: build venv ## checkpoints in memory, with kills, two tests at once: they mostly wait
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../$(PY) -m pytest -q -n 2 $(TESTS_FLASH) -k 'not ($(FLASH_LONG))'
test-flash-long: build venv ## what of it takes long
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../$(PY) -m pytest -q $(TESTS_FLASH) -k '$(FLASH_LONG)'

.PHONY: test-landing-disk
test-landing-disk: build venv ## pushed records on a real disk that is full (needs root); in `make test-long`
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../$(PY) -m pytest -q tests/integration/check_landing_disk.py

.PHONY: test-oom
test-oom: build venv ## records that make the kernel kill their trainer for want of memory (needs root and memory cgroups, v1 or v2); in `make test-long`
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../$(PY) -m pytest -q tests/integration/check_oom.py

.PHONY: test-large-gzip
MIB ?= 256
test-large-gzip: build venv ## a .gz of MIB is leased in pieces and read on from the middle after kills; in `make test-long`
	cd connectors/python && MIB=$(MIB) HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../$(PY) -m pytest -q -s tests/integration/check_large_gzip.py

.PHONY: test-python-kafka
test-python-kafka: build venv quickstart-needs-kafka ## the same over topics of a real Kafka
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../$(PY) -m pytest -q $(PYTHON_KAFKA)

# What of the tests makes or takes arrays; the whole product once.
PYTHON_ARRAYS := $(addprefix tests/test_,frame.py regions.py hash.py stream.py claim.py covered.py shuffle.py checkpoint.py manifest.py \
  sharded.py restore.py pickled.py state.py push_form.py package.py) tests/integration/test_spine.py
NUMPY1 := cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" ../../build/venv-numpy1/bin/python -m pytest -q
.PHONY: venv-numpy1 test-python-numpy1 test-python-numpy1-arrays
venv-numpy1: need
	@test -x build/venv-numpy1/bin/pytest || { $(PYTHON_OLD) -m venv build/venv-numpy1 && \
	  build/venv-numpy1/bin/python -m pip install -q --no-compile 'numpy>=1.22,<2' awscrt==0.38.1 'safetensors>=0.4.3,<1' pytest==8.4.2 pytest-timeout==2.4.0 && \
	  echo "$(CURDIR)/connectors/python/src" >"$$(build/venv-numpy1/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/headrace.pth"; }
test-python-numpy1-arrays: build venv-numpy1 ## with the oldest numpy line, and PYTHON_OLD: what makes or takes arrays
	$(NUMPY1) $(PYTHON_ARRAYS)
test-python-numpy1: build venv-numpy1 ## the same, all of test-python
	$(NUMPY1) --ignore=$(PYTHON_KAFKA) $(addprefix --ignore=,$(PYTHON_S3)) --ignore=$(PYTHON_ARROW)

# They import torch in twelve and in six processes. With forks of one process test-torch plays them too.
TORCH_LONG := same_ranks or trainer_under_torchrun
.PHONY: test-torch
test-torch: build venv quickstart-needs-kafka ## headrace.torch with a real torch; the first time it installs one, for the CPU, into ~/.cache/headrace
	@python="$$($(PYTHON) connectors/python/tests_torch/install_torch.py)" && cd connectors/python && \
	  HEADRACE_BIN="$(CURDIR)/$(BIN)" PYTHONPATH="$(CURDIR)/connectors/python/src" "$$python" -m pytest -q --timeout 1800 tests_torch -k 'not ($(TORCH_LONG))'

# Ray Train needs a torch: that of test-torch.
.PHONY: test-ray
test-ray: build ## headrace.ray with a real Ray; the first time it installs Ray and torch into ~/.cache/headrace; in `make test-long`
	@python="$$($(PYTHON) connectors/python/environment.py ray connectors/python/tests_ray/requirements.txt)" && \
	  torch="$$("$$($(PYTHON) connectors/python/tests_torch/install_torch.py)" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" && cd connectors/python && \
	  HEADRACE_BIN="$(CURDIR)/$(BIN)" PYTHONPATH="$(CURDIR)/connectors/python/src:$$torch" "$$python" -m pytest -q --timeout 1800 tests_ray

.PHONY: test-registry
test-registry: build ## Avro and Protobuf from a real Kafka with a real schema registry (needs java, and mvn once); the first time it installs confluent-kafka and fastavro into ~/.cache/headrace
	@python="$$($(PYTHON) connectors/python/environment.py registry connectors/python/tests_registry/requirements.txt)" && cd connectors/python && \
	  HEADRACE_BIN="$(CURDIR)/$(BIN)" PYTHONPATH="$(CURDIR)/connectors/python/src" "$$python" -m pytest -q --timeout 600 tests_registry

HISTORIES ?= 500
.PHONY: test-torch-long
test-torch-long: build ## HISTORIES random histories of 4 gloo ranks with stalls, kills and 4 -> 3 -> 4 ranks; about an hour
	@python="$$($(PYTHON) connectors/python/tests_torch/install_torch.py)" && cd connectors/python && \
	  HISTORIES=$(HISTORIES) HEADRACE_BIN="$(CURDIR)/$(BIN)" PYTHONPATH="$(CURDIR)/connectors/python/src" "$$python" -m pytest -q tests_torch/test_distributed.py tests_torch/test_frameworks.py tests_torch/check_histories.py -k '$(TORCH_LONG) or check_histories'

# The quick compiler only: no build or test runs long enough to be paid back for the other.
MVN := MAVEN_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC $${MAVEN_OPTS:-}" mvn -q -B -f connectors/pom.xml
.PHONY: spark test-spark
spark: need ## the jars of the Spark connector, connectors/spark/*/target (needs java 11 or newer, and mvn)
	$(MVN) -pl java,spark,spark/spark-3.5,spark/spark-4 package -DskipTests
# Its path is in HEADRACE_SERVER_S3 for the tests in Java and Python.
.PHONY: build-server-s3
build-server-s3: need
	@$(GO) build -o build/server-s3 ./internal/proof/testbroker/server-s3
test-spark: build venv spark ## the Spark connector on a real Spark 3.5.9 and 4.0.5; the first time it installs them into ~/.cache/headrace; in `make test-long`
	@for of in 3.5 4; do \
	  python="$$($(PYTHON) connectors/python/environment.py spark-$$of connectors/spark/tests/requirements-$$of.txt)"; \
	  HEADRACE_BIN="$(CURDIR)/$(BIN)" HEADRACE_SPARK_PYTHON="$$python" HEADRACE_SPARK_JAR="$(CURDIR)/connectors/spark/spark-$$of/target/headrace-spark-$$of-0.1.0.jar" \
	    $(PY) -m pytest -q -c connectors/python/pyproject.toml --rootdir connectors/spark --timeout 1800 connectors/spark/tests; done

.PHONY: test-java
test-java: build venv build-server-s3 ## the Java client for pushed records against the real binary and a real S3 server (needs java 11 or newer, and mvn)
	HEADRACE_BIN="$(CURDIR)/$(BIN)" HEADRACE_SERVER_S3="$(CURDIR)/build/server-s3" HEADRACE_PYTHON="$(CURDIR)/$(PY)" $(MVN) -pl java test

.PHONY: test-tf test-tf-215 test-tf-221
test-tf: test-tf-215 test-tf-221 ## headrace.tensorflow with a real TensorFlow 2.15 and 2.21; the first time it installs both, for the CPU, into ~/.cache/headrace
test-tf-215: build ## of it TensorFlow 2.15: dataset, Estimator, Keras 2
	@python="$$($(PYTHON) connectors/python/tests_tf/install_tf.py 2.15)" && cd connectors/python && TF_CPP_MIN_LOG_LEVEL=2 \
	  HEADRACE_BIN="$(CURDIR)/$(BIN)" PYTHONPATH="$(CURDIR)/connectors/python/src" "$$python" -m pytest -q tests_tf
test-tf-221: build ## of it TensorFlow 2.21: dataset, Keras 3
	@python="$$($(PYTHON) connectors/python/tests_tf/install_tf.py 2.21)" && cd connectors/python && TF_CPP_MIN_LOG_LEVEL=2 \
	  HEADRACE_BIN="$(CURDIR)/$(BIN)" PYTHONPATH="$(CURDIR)/connectors/python/src" "$$python" -m pytest -q tests_tf

.PHONY: test-tf-kills
test-tf-kills: build quickstart-needs-kafka ## examples/estimator_clicks through KILLS kills (300) of every process, judged id by id; in `make test-long`; HEADRACE_SEED and FIRST=job play it again; hours
	@python="$$($(PYTHON) connectors/python/tests_tf/install_tf.py 2.15)" && cd connectors/python && TF_CPP_MIN_LOG_LEVEL=2 KILLS=$(if $(filter file,$(origin KILLS)),300,$(KILLS)) \
	  HEADRACE_BIN="$(CURDIR)/$(BIN)" PYTHONPATH="$(CURDIR)/connectors/python/src" "$$python" -m pytest -q tests_tf/check_kills.py

FLINK_THIN := flink/v1.20/connector,flink/v2/connector
.PHONY: flink test-flink
flink: need ## the jars of the Flink connector, under connectors/flink/v*/ (needs java 11 or newer, and mvn)
	$(MVN) -pl $(FLINK_THIN),flink/v1.20/sql,flink/v2/sql -am package -DskipTests
# The code of both lines is one but for what their interfaces need. The sink and its tables are
# tested on both; the page's programs and a restore on 1.20 only in `make test-long`.
FLINK_TEST := HEADRACE_BIN="$(CURDIR)/$(BIN)" HEADRACE_SERVER_S3="$(CURDIR)/build/server-s3" HEADRACE_PYTHON="$(CURDIR)/$(PY)" $(MVN)
.PHONY: test-flink-long
test-flink: build venv build-server-s3 ## the Flink connector on Flink 1.20 and 2.x: Flink's own suite for sinks, SQL; and test-java
	$(FLINK_TEST) -pl $(FLINK_THIN) -am test -Dleft.out.on.1.20='PageTest|RestoreTest'
test-flink-long: build venv build-server-s3 ## all of it on Flink 1.20, and test-java
	$(FLINK_TEST) -pl flink/v1.20/connector -am test

FLINK ?= 2.3.0
.PHONY: flink-clicks test-flink-clicks
flink-clicks: build venv flink ## examples/flink_clicks: Flink joins clicks with impressions, a trainer learns from the rows; FLINK=1.20.3 for the other line, KILL=1
	$(PY) examples/flink_clicks/run.py --flink $(FLINK) $(if $(KILL),--kill)
test-flink-clicks: build venv flink ## the same with a kill of Flink's task manager, checked; in `make test-long`
	@for of in 2.3.0 1.20.3; do HEADRACE_FLINK=$$of HEADRACE_BIN="$(CURDIR)/$(BIN)" \
	  $(PY) -m pytest -q -c connectors/python/pyproject.toml --rootdir connectors/flink --timeout 1800 connectors/flink/tests/test_example.py connectors/flink/tests/test_shaded.py; done

.PHONY: test-flink-kills
FLINK_KILLS := 2 1.20
test-flink-kills: build venv ## a Flink job and the master are killed and started again; each record is trained on once, also with chunks that go straight to S3; FLINK_KILLS=2 for one of the two lines; in `make test-long`
	$(MVN) -pl $(FLINK_THIN) -am process-test-classes -DskipTests
	@for of in $(FLINK_KILLS); do target="$(CURDIR)/connectors/flink/v$$of/connector/target"; jars="$$(cat "$$target/classpath.txt")"; \
	  HEADRACE_FLINK_CLASS_PATH="$$target/test-classes:$$target/classes:$$jars" HEADRACE_BIN="$(CURDIR)/$(BIN)" \
	  $(PY) -m pytest -q -s -c connectors/python/pyproject.toml --rootdir connectors/flink --timeout 2400 connectors/flink/tests/test_kills.py; done

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
	$(PY) -m pytest -q examples bench/test_goals.py bench/test_stepped.py --ignore=examples/test_quickstart_kafka.py --ignore=examples/test_quickstart_pulsar.py --ignore=examples/test_quickstart_rocketmq.py

.PHONY: test-quickstart-kafka
test-quickstart-kafka: build venv quickstart-needs-kafka ## the same on a real Kafka, beside a consumer group
	$(PY) -m pytest -q examples/test_quickstart_kafka.py

.PHONY: broker-kafka
broker-kafka: need ## a real Kafka on 127.0.0.1 until Ctrl-C; prints its address
	@$(GO) run ./internal/proof/testbroker/broker-kafka $(ARGS)

.PHONY: broker-rocketmq
broker-rocketmq: need ## a real RocketMQ on 127.0.0.1 until Ctrl-C; prints its name server's address
	@$(GO) run ./internal/proof/testbroker/broker-rocketmq $(ARGS)

.PHONY: broker-pulsar
broker-pulsar: need ## a real Pulsar on 127.0.0.1 until Ctrl-C; prints its two addresses
	@$(GO) run ./internal/proof/testbroker/broker-pulsar $(ARGS)

.PHONY: test-race-kafka
test-race-kafka: need venv ## the Kafka source under the race detector, on a real Kafka
	@$(PY) -m pip install -q -r sources/kafka/testdata/requirements.txt
	CGO_ENABLED=1 HEADRACE_PYTHON="$(CURDIR)/$(PY)" $(GO) test -race -tags kafka -count=1 -vet=off -timeout 20m ./sources/kafka

.PHONY: server-s3
server-s3: need ## a real S3 server on 127.0.0.1 until Ctrl-C; prints the variables that clients need
	@$(GO) run ./internal/proof/testbroker/server-s3 $(ARGS)

# Their bytes come from S3 as those of lines and of gzip do.
S3_LONG := TestTFRecordsOnS3PassTheSuite|TestZstdLinesOnS3PassTheSuite
.PHONY: test-s3 test-s3-long
test-s3: build venv build-server-s3 ## what lies in S3, on a real S3 server (versitygw, built once from its module); in Python two tests at once
	$(GO) test -tags s3 -count=1 -vet=off -timeout 20m -run "S3|Thousands" -skip '$(S3_LONG)' ./sources/files
	$(GO) test -tags s3 -count=1 -vet=off -timeout 20m ./internal/storage/s3 ./flashckpt/memory
	$(GO) test -tags s3 -count=1 -vet=off -timeout 20m -run S3 ./cmd/headrace
	cd connectors/python && HEADRACE_BIN="$(CURDIR)/$(BIN)" HEADRACE_SERVER_S3="$(CURDIR)/build/server-s3" ../../$(PY) -m pytest -q -n 2 $(PYTHON_S3)
test-s3-long: build-server-s3 ## more formats in S3
	$(GO) test -tags s3 -count=1 -vet=off -timeout 20m -run '$(S3_LONG)' ./sources/files

.PHONY: test-kafka
test-kafka: build venv test-quickstart-kafka test-python-kafka test-chaos-kafka test-kafka-go ## the Kafka source on a real Kafka (needs java, and mvn once)
# The parts have brokers of their own and mostly wait for them, so they run side by side.
.PHONY: test-kafka-go test-kafka-long
test-kafka-go: build venv quickstart-needs-kafka ## the part of it that is in Go
	@export HEADRACE_PYTHON="$(CURDIR)/$(PY)"; pids=; part() { "$$@" & pids+=" $$!"; }; \
	part $(GO) test -tags kafka -count=1 -vet=off -timeout 20m ./sources/kafka; \
	part $(GO) test -tags kafka -count=1 -vet=off -timeout 20m ./cmd/headrace -run Kafka -skip FrozenForLong; \
	failed=0; for pid in $$pids; do wait $$pid || failed=1; done; exit $$failed
# What writes records for the tests and demos is played in each quick start, which counts the
# records and kills the broker. By itself it is tested in the targets that take long.
test-kafka-long: build venv ## a broker that is away for two minutes, and one that is frozen for 45 s; the suite of sources with all its random ranges; what writes records for the demo
	HEADRACE_SUITE=whole $(GO) test -tags kafka -count=1 -vet=off -timeout 20m ./sources/kafka -run PassTheSuite
	$(GO) test -tags kafka -count=1 -vet=off -timeout 10m ./internal/proof/demo/produce
	HEADRACE_PYTHON="$(CURDIR)/$(PY)" $(GO) test -tags kafka -count=1 -vet=off -timeout 20m ./cmd/headrace -run 'WaitsForItsBroker|KafkaBrokerThatIsFrozenForLong'

.PHONY: test-quickstart-pulsar
test-quickstart-pulsar: build venv quickstart-needs-pulsar ## the same on a real Pulsar, beside the official client
	$(PY) -m pytest -q examples/test_quickstart_pulsar.py

.PHONY: test-pulsar test-pulsar-long
# Its two parts have brokers of their own and mostly wait for them.
test-pulsar: build venv ## the Pulsar source on a real Pulsar (needs java, and mvn once)
	@pids=; part() { "$$@" & pids+=" $$!"; }; \
	part $(GO) test -tags pulsar -count=1 -vet=off -timeout 30m ./sources/pulsar; \
	part $(GO) test -tags pulsar -count=1 -vet=off -timeout 30m -run Pulsar -skip FrozenForLong ./cmd/headrace; \
	failed=0; for pid in $$pids; do wait $$pid || failed=1; done; exit $$failed
test-pulsar-long: build venv ## a broker that is frozen for 45 s; the suite of sources with all its random ranges; what writes records for tests
	HEADRACE_SUITE=whole $(GO) test -tags pulsar -count=1 -vet=off -timeout 20m ./sources/pulsar -run TestConformance
	$(GO) test -tags pulsar -count=1 -vet=off -timeout 10m -run Pulsar ./internal/proof/testbroker
	$(GO) test -tags pulsar -count=1 -vet=off -timeout 10m -run PulsarBrokerThatIsFrozenForLong ./cmd/headrace

.PHONY: test-quickstart-rocketmq
test-quickstart-rocketmq: build venv ## the quick start on a real RocketMQ, beside its own push consumers
	$(PY) -m pytest -q examples/test_quickstart_rocketmq.py

# The parts have brokers of their own and mostly wait for them, so they run side by side.
ROCKETMQ_ALONE := TestBrokersThatAreKilledFrozenOrAwayLoseNothingAndHoldUpNobodyElse TestMessagesThatABrokerLostAndOthersReplaceAreTold
ROCKETMQ_LONG  := TestLargeMessagesAndSlowReadersLoseNothing TestWhatJavaAndGoWroteIsTheSameForUsAndForTheOfficialConsumer TestWhileFilesAreRemovedNothingIsSkippedAndASlaveGivesWhatItStillHas TestAFrozenMasterIsReadAtItsSlave
ROCKETMQ_LONG_RUNS := RocketMQLoses|RocketMQBrokerThatIsFrozenForLong
.PHONY: test-rocketmq test-rocketmq-long
test-rocketmq: build venv ## the RocketMQ source on a real RocketMQ (needs java, and mvn once)
	$(GO) test -c -tags rocketmq -o build/rocketmq.test ./sources/rocketmq
	@pids=; trap 'kill $$pids' INT TERM; part() { "$$@" & pids+=" $$!"; }; cd sources/rocketmq; \
	for alone in $(ROCKETMQ_ALONE); do part ../../build/rocketmq.test -test.timeout 20m -test.run "^$$alone\$$"; done; \
	part ../../build/rocketmq.test -test.timeout 20m -test.skip '$(subst $() ,|,$(ROCKETMQ_ALONE) $(ROCKETMQ_LONG))'; \
	part $(GO) test -tags rocketmq -count=1 -vet=off -timeout 10m ../../cmd/headrace -run 'RocketMQ' -skip '$(ROCKETMQ_LONG_RUNS)'; \
	failed=0; for pid in $$pids; do wait $$pid || failed=1; done; exit $$failed
test-rocketmq-long: build venv ## what takes minutes: 200,000 messages of two clients; the suite of sources with all its random ranges; what writes records for tests
	$(GO) test -tags rocketmq -count=1 -vet=off -timeout 10m -run RocketMQ ./internal/proof/testbroker
	$(GO) test -tags rocketmq -count=1 -vet=off -timeout 30m ./sources/rocketmq -run '$(subst $() ,|,$(ROCKETMQ_LONG))'
	HEADRACE_SUITE=whole $(GO) test -tags rocketmq -count=1 -vet=off -timeout 20m ./sources/rocketmq -run PassTheSuite
	$(GO) test -tags rocketmq -count=1 -vet=off -timeout 20m ./cmd/headrace -run '$(ROCKETMQ_LONG_RUNS)'

KILLS ?= 60
MODEL ?= all
SEED ?= 0
PARALLEL ?= 2
CHAOS := $(GO) run ./internal/proof/chaos/cmd
.PHONY: chaos chaos-memory test-chaos
chaos-memory: build venv ## chaos on files with checkpoints in memory: nodes that are lost, bits that flip, memory that is full; KILLS, MODEL=private|replicated, SEED
	$(CHAOS) --draw memory --source files --model $(if $(filter all,$(MODEL)),in-memory,$(MODEL)) --kills $(KILLS) --seed $(SEED) --parallel $(PARALLEL) $(if $(ROUNDS),--rounds $(ROUNDS))
chaos: build venv quickstart-needs-kafka ## KILLS at random and at named points, PARALLEL rounds at once, over files, Kafka and live Kafka; or SOURCE=files|kafka|pulsar|rocketmq|landing, LIVE=1, MODEL=shared|private|replicated, DRAW=words, SEED, ROUNDS: docs/CHAOS.md
	$(CHAOS) --source $(if $(filter file,$(origin SOURCE)),all,$(SOURCE)) $(if $(LIVE),--live) $(if $(JOURNAL),--journal) \
	  --model $(MODEL) --kills $(KILLS) --seed $(SEED) --parallel $(PARALLEL) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(DRAW),--draw $(DRAW))
.PHONY: chaos-group
PREFETCH ?= 0
chaos-group: build venv quickstart-needs-kafka ## the same tool on a plain consumer group: what that loses and repeats; PREFETCH batches read ahead
	$(GO) run ./internal/proof/chaos/cmd --group internal/proof/chaos/group.py --prefetch $(PREFETCH) --kills $(KILLS) --seed $(SEED)
test-chaos: build venv ## a minute of it; HEADRACE_SEED runs one again
	$(CHAOS) --kills 40 --round-kills 10 --parallel 2
	$(CHAOS) --journal --kills 20 --round-kills 10 --rounds 3 --parallel 2
.PHONY: test-chaos-planted
test-chaos-planted: build venv ## bugs that are planted are found by chaos; some minutes
	$(GO) test -tags planted -count=1 -timeout 60m -v -run Planted ./internal/proof/chaos
.PHONY: test-chaos-kafka
test-chaos-kafka: build venv quickstart-needs-kafka ## the same over topics, the broker among the victims
	$(CHAOS) --source kafka --model shared --kills 12 --round-kills 10 --rounds 1
	$(CHAOS) --source kafka --live --kills 24 --round-kills 10 --rounds 3 --parallel 2
	$(CHAOS) --group internal/proof/chaos/group.py --prefetch 4 --kills 2 --patience 120s

.PHONY: test-chaos-pulsar
test-chaos-pulsar: build venv ## the same over Pulsar's topics; in `make test-long`
	$(CHAOS) --source pulsar --model shared --kills 12 --round-kills 10 --rounds 1
	$(CHAOS) --source pulsar --live --kills 24 --round-kills 10 --rounds 2

.PHONY: test-chaos-rocketmq
test-chaos-rocketmq: build venv ## the same over RocketMQ's topics; in `make test-long`
	$(CHAOS) --source rocketmq --model shared --kills 12 --round-kills 10 --rounds 1
	$(CHAOS) --source rocketmq --live --kills 40 --round-kills 10 --rounds 3 --parallel 2

.PHONY: test-chaos-landing
test-chaos-landing: build venv ## the same over records that are pushed meanwhile, by pushers that die between their calls; in `make test-long`
	$(CHAOS) --source landing --kills 40 --round-kills 10 --rounds 3 --parallel 2

.PHONY: test-bench
test-bench: build venv ## each benchmark in Python starts, measures something small and ends well; those in Go have Go tests
	$(PY) -m pytest -q bench/test_smallest.py

.PHONY: test-nvml
test-nvml: need ## the binary that lists GPUs builds and starts (needs a C compiler); a driver is not needed
	@mkdir -p build
	CGO_ENABLED=1 $(GO) build -trimpath -tags nvml -ldflags '$(LDFLAGS)' -o build/headrace-nvml ./cmd/headrace
	build/headrace-nvml version

SEEDS ?= 10000
.PHONY: sim test-sim test-planted test-sim-long
sim: need ## the simulation: SEEDS of them, or one with its trace: SEED=n
	@$(GO) build -o build/sim ./internal/proof/sim/cmd
	@build/sim $(if $(filter-out 0,$(SEED)),--seed $(SEED) --shrink,--seeds $(SEEDS))
test-sim: need ## a short run of it: the seeds after those of test-go, and some that are drawn now
	@$(GO) build -o build/sim ./internal/proof/sim/cmd
	@build/sim --first 201 --seeds 1000
	@build/sim --first 0 --seeds 100
test-planted: need ## bugs that are planted in the cores are found by the simulation
	$(GO) run ./internal/proof/planted/overlay build/planted
	$(GO) test -overlay build/planted/overlay.json -tags planted -count=1 -vet=off -run 'Planted|Shrunk' ./internal/proof/sim
test-sim-long: need ## more seeds of the simulation
	@$(GO) build -o build/sim ./internal/proof/sim/cmd
	@build/sim --seeds 10000

.PHONY: check
# It may take results from Go's cache, also those of another clone. make test never does.
check: build lint test-go-unit test-race ## the inner loop: unit tests, and the race detector on the cores, the shell and the agent

# Three lanes play these side by side, in this order: suites that mostly wait, for brokers or
# for processes that they have killed, beside those that compute. Together are the suites with
# the most brokers at once. test-flink plays all of test-java.
LANES := "lint test-go-unit test-race test-go-whole" "test-pulsar test-rocketmq test-quickstart-rocketmq test-quickstart-pulsar" test-python test-kafka-go test-fuzz test-s3 test-flink test-rounds test-torch test-chaos-kafka test-quickstart test-sim test-chaos test-planted test-quickstart-kafka test-python-numpy1-arrays test-flash test-python-kafka test-registry test-nvml wheel test-monitoring
.PHONY: test
test: need ## everything CI runs
	@$(MAKE) --no-print-directory -j2 build build-server-s3 quickstart-needs-brokers
	@COUNT=-count=1 .ci/lanes 3 $(LANES)

.PHONY: test-long
test-long: test test-kafka-long test-pulsar-long test-rocketmq-long test-s3-long test-flink-long test-flash-long test-sim-long test-chaos-planted test-python-numpy1 test-spark test-ray test-tf test-flink-clicks test-flink-kills test-chaos-landing test-landing-disk test-oom test-large-gzip test-chaos-pulsar test-chaos-rocketmq test-tf-kills fuzz ## what takes long

FUZZTIME ?= 10m
.PHONY: fuzz test-fuzz
fuzz: need ## each fuzz target for FUZZTIME, on all cores; with the default it takes hours
	@GO=$(GO) .ci/fuzz $(FUZZTIME)

test-fuzz: need ## 16 fuzz targets that are drawn, each for 2 s on one core; 5,000 inputs are enough
	@GO=$(GO) CORES=1 KEPT=none MOST=5000 DRAW=16 .ci/fuzz 2s

.PHONY: generate
generate: venv ## api/**/*.pb.go from the proto files
	@mkdir -p .tools
	$(GO) build -o .tools/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
	PATH="$(CURDIR)/.tools:$$PATH" $(PY) -m grpc_tools.protoc -I api \
	  --go_out=. --go_opt=module=github.com/headrace/headrace \
	  --go-grpc_out=. --go-grpc_opt=module=github.com/headrace/headrace api/headrace/v1/*.proto

# ROUNDS=n: fewer rounds (or pairs of windows) of each benchmark in Python but bench-flash and bench-deltas. Its ranges say less.
FEWER = $(if $(ROUNDS),--rounds $(ROUNDS))
.PHONY: bench bench-lease bench-makespan bench-decode bench-acks bench-exact bench-kafka bench-rocketmq bench-pulsar bench-freshness bench-flash bench-deltas
bench-lease: build ## durable lease+ack pairs per second
	$(GO) run ./bench/lease
bench-makespan: build ## time over ideal, memory, planner cost
	$(GO) run ./bench/makespan
bench-decode: build venv ## file to numpy batches, against pyarrow
	$(PY) -m bench.decode.bench $(FEWER)
bench-acks: build venv ## the cost of acking every batch
	$(PY) -m bench.acks.bench $(if $(ROUNDS),--pairs $(ROUNDS))
bench-exact: build venv ## the cost of acks, cuts and a checkpoint every 10 s, against none
	$(PY) -m bench.acks.bench --seconds 10 --pairs $(or $(ROUNDS),20) --save-every 10
bench-kafka: build venv ## Kafka to numpy batches, against confluent-kafka (needs java, and mvn once)
	$(PY) -m bench.kafka.bench $(FEWER)
bench-rocketmq: build venv ## RocketMQ to numpy batches, against the official Go client (needs java, and mvn once)
	$(PY) -m bench.rocketmq.bench $(FEWER)
bench-pulsar: build venv ## Pulsar to numpy batches, against the official Python client (needs java, and mvn once)
	$(PY) -m bench.pulsar.bench $(FEWER)
bench-freshness: build venv ## age of records in Python at 10,000/s, against the queue's own client (needs java, and mvn once); SOURCE=kafka|pulsar|rocketmq, PARTITIONS
	$(PY) -m bench.freshness.bench --source $(if $(filter file,$(origin SOURCE)),kafka,$(SOURCE)) --partitions $(or $(PARTITIONS),2) $(FEWER)
# bench-freshness-kafka-500: the source, and how many partitions
bench-freshness-%: build venv
	$(PY) -m bench.freshness.bench --source $(word 1,$(subst -, ,$*)) --partitions $(word 2,$(subst -, ,$*)) $(FEWER)
.PHONY: bench-landing
bench-landing: build venv ## pushed records until a trainer has them, against a Kafka producer and consumer (needs java, and mvn once)
	$(PY) -m bench.landing.bench
bench-flash: build venv ## what a save in memory blocks, what a restore from it costs
	$(PY) -m bench.flash.bench
bench-deltas: build venv ## a delta of a table beside a whole save
	$(PY) -m bench.flash.deltas
.PHONY: bench-rounds
bench-rounds: build venv ## four ranks with rounds, against the same without
	$(PY) -m bench.rounds.bench
.PHONY: bench-tf
bench-tf: build venv ## input of a trivial Estimator, against TFRecord + parse_example
	$(PY) -m bench.tensorflow.bench
.PHONY: bench-columnar
bench-columnar: build-bench-columnar ## tf.Example with 40 features, against tf.data and parse_example
	@python="$$($(PYTHON) connectors/python/tests_tf/install_tf.py 2.15)" && $(PYTHON) bench/columnar/run.py --tensorflow "$$python" --reader build/bench-columnar
.PHONY: build-bench-columnar
build-bench-columnar: need
	@$(GO) build -o build/bench-columnar ./bench/columnar
.PHONY: bench-parquet
bench-parquet: build-bench-columnar venv ## Parquet of 40 columns, decoder alone and end to end, against pyarrow
	$(PY) -m bench.columnar.parquet --reader build/bench-columnar
.PHONY: bench-against
bench-against: build venv ## this tree over another commit, in turns: COMMIT=..., ONLY=lease,planner,feed,decode, ROUNDS=5
	@$(if $(COMMIT),,echo "COMMIT=... is missing: the commit to compare with" >&2; exit 1)
	$(PY) bench/against.py $(COMMIT) $(if $(ONLY),--only $(ONLY)) $(FEWER)
bench: build venv ## all of them; rewrites docs/BENCHMARKS.md; ROUNDS=n: fewer rounds
	$(PY) bench/run.py

.PHONY: clean
clean: ## build output
	rm -rf build .tools
