# make test   every test that this machine can run; the last lines say what is missing and how to add it
# make lint   gofumpt, golangci-lint, go vet (make tools installs them)
# make demo   the demo consumer, everything embedded
# make outage the payment service is cut off under load, in each way that networks have; what that costs is checked
# make up     the stack of deploy/compose, for tests of one's own (docs/local.md); make down ends it and deletes its data
# make bench  the benchmarks against the peers
# make fuzz   each fuzz target for FUZZTIME, two at a time (.ci/fuzz)
# make schedules  N random schedules of failures, of which make test runs some (test/schedule)
# make attack  scenarios of faults on a real cluster, and an audit after each (test/attack)
# make release the command for each platform, reproducible, with a bill of materials each (.ci/release)
# make soak   MINUTES of steady load with a fault a minute, and a plot of what grew (test/attack)
# make fmt    format
# make ci     what CI runs

GO          ?= go
BIN         := $(shell $(GO) env GOPATH)/bin
PACKAGES    ?= ./...
FUZZTIME    ?= 30s
# Two packages at a time: each may have a Postgres of its own, and what they wait for is seldom the processor.
PARALLEL    ?= 2
# The end-to-end tests alone take ten minutes of two quiet processors.
TESTFLAGS   ?= -timeout 30m
# The race detector needs a C compiler. Without one the tests run all the same, without it.
RACE        := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION       := v0.12.0
GOVULNCHECK_VERSION   := v1.9.0
CYCLONEDX_VERSION     := v1.10.0

.PHONY: test lint fmt demo outage up down docker bench fuzz schedules attack soak release tools ci

test:
	@$(if $(RACE),,echo "no C compiler: without the race detector")
	cd downstream/grpccall && $(GO) test $(RACE) $(TESTFLAGS) ./...
	$(GO) run ./internal/cmd/test $(NO_SKIPS) -p $(PARALLEL) $(RACE) $(TESTFLAGS) $(PACKAGES)

lint:
	@unformatted=$$($(BIN)/gofumpt -l .); [ -z "$$unformatted" ] || { echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(BIN)/golangci-lint run ./...
	cd bench && $(GO) vet ./... && $(BIN)/golangci-lint run --config ../.golangci.yaml ./...
	cd downstream/grpccall && $(GO) vet ./... && $(BIN)/golangci-lint run --config ../../.golangci.yaml ./...
	cd test/attack/load/rdkafka && $(GO) vet ./... && $(BIN)/golangci-lint run --config ../../../../.golangci.yaml ./...

fmt:
	$(BIN)/gofumpt -w .

demo:
	$(GO) run ./cmd/demo-consumer

outage:
	$(GO) run ./cmd/outage

COMPOSE := docker compose -f deploy/compose/compose.yaml

up: docker
	$(COMPOSE) up --detach --build --wait

down: docker
	$(COMPOSE) down --volumes

docker:
	@docker compose version > /dev/null 2>&1 || { echo "this needs Docker with its compose plugin; without: go run ./cmd/demo-consumer -stay"; exit 1; }
	@docker info > /dev/null 2>&1 || { echo "Docker is installed, but its engine does not answer: is it running?"; exit 1; }

bench:
	cd bench && $(GO) run .

fuzz:
	FUZZTIME=$(FUZZTIME) .ci/fuzz

N ?= 5000
schedules:
	HEADRACE_SCHEDULES=$(N) $(GO) test -count 1 -timeout 24h -v -run '^TestSchedules$$' ./test/schedule

SEED     ?= 1
SECONDS  ?= 60
SCENARIO ?= mixed
RUNS     ?= 8
attack:
	$(GO) run ./test/attack -seed $(SEED) -seconds $(SECONDS) -scenario $(SCENARIO) -runs $(RUNS)

release:
	.ci/release

MINUTES ?= 60
PLOT    ?= soak.svg
soak:
	$(GO) run ./test/attack -soak $(MINUTES) -seed $(SEED) -plot $(PLOT)

tools:
	$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	$(GO) install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	$(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	$(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)

ci:
	CI=true .ci/run
