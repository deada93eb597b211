# meshctl: how it is built, tested and packed. `make` prints what there is.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

export GOTOOLCHAIN := go1.27.3
export DEBIAN_FRONTEND := noninteractive

# sudo resets PATH, so go is also looked for where its tarball puts it.
GO       := $(or $(shell command -v go),$(wildcard /usr/local/go/bin/go),go)
export PATH := $(PATH):$(dir $(GO)):/usr/local/sbin:/usr/sbin:/sbin
VERSION  ?= $(or $(shell git -c safe.directory='*' describe --tags --always --dirty 2>/dev/null),dev)
FUZZTIME ?= 10s
PKG      ?= ./...
IMAGE    ?= localhost/meshctl:$(VERSION)

# Tools that are no part of the product run outside go.mod, at a fixed version.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
VULNDB      := golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018
HELM        := v3.22.0
SPIRE       := 1.13.3

# Debian packages. The servers and clients are those of integration/; none of them
# is used through its system service.
DEPS := iptables nftables iproute2 procps util-linux libcap2-bin curl nghttp2-client \
	mariadb-server mariadb-client postgresql redis-server memcached nats-server \
	opensmtpd openssh-server nginx-light podman runc

# What make kube-e2e runs pods with, besides the programs that it builds.
KUBEDEPS := containerd runc containernetworking-plugins catatonit podman nftables iproute2 \
	util-linux libcap2-bin curl

# Three packages at a time and at most four parallel tests in each: namespaces and
# real servers share the machine's cores, but mostly they wait.
TESTFLAGS := -count=1 -p 3 -parallel 4 -timeout 8m

define need_root
	if [ "$$(id -u)" -ne 0 ]; then
		echo "make $@ makes network namespaces: run it as root (sudo make $@)" >&2
		exit 77
	fi
endef

# All tests that run the program run this one, in a folder that any user reaches:
# the proxy is not root, and the tree may be.
define under_test
	dir=$$(mktemp -d)
	trap 'rm -rf "$$dir"' EXIT
	chmod 711 "$$dir"
	install -m 755 bin/meshctl "$$dir/meshctl"
	export MESHCTL_UNDER_TEST=$$dir/meshctl
endef

##@ Everyday

.PHONY: help
help: ## print this
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\nVariables: PKG=%s FUZZTIME=%s VERSION=%s IMAGE=%s\n' '$(PKG)' '$(FUZZTIME)' '$(VERSION)' '$(IMAGE)'

# grpcnotrace: gRPC's own trace pages would link html/template in, 5 MB of program and
# 3 MB of the proxy's memory for nothing.
.PHONY: build
build: ## compile bin/meshctl, static
	@CGO_ENABLED=0 $(GO) build -tags grpcnotrace -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$(VERSION)" -o bin/meshctl ./cmd/meshctl

.PHONY: test
test: ## all tests: unit, golden, namespaces, real servers (root)
	@$(need_root)
	$(MAKE) --no-print-directory deps build
	$(under_test)
	MESHCTL_NETNS=require CGO_ENABLED=0 $(GO) test $(TESTFLAGS) -json $(PKG) | $(GO) run ./internal/tools/testsum

.PHONY: check
check: lint ## what a commit has to pass: lint, and the tests that need no root
	@CGO_ENABLED=0 $(GO) test $(TESTFLAGS) -json $(PKG) | $(GO) run ./internal/tools/testsum

.PHONY: demo
demo: build ## show what meshctl does, in two namespaces, under 10 s (root)
	@$(need_root)
	bin/meshctl demo

.PHONY: clean
clean: ## remove what make built
	@rm -rf bin cover.out

##@ Tests in part

.PHONY: race
race: ## the tests under the race detector (root, a C compiler)
	@$(need_root)
	$(MAKE) --no-print-directory deps DEPS='$(DEPS) gcc libc6-dev'
	MESHCTL_NETNS=require CGO_ENABLED=1 $(GO) test -race $(TESTFLAGS) -timeout 20m -json $(PKG) | $(GO) run ./internal/tools/testsum

.PHONY: integration
integration: ## only the namespaces and the real servers (root)
	@$(need_root)
	$(MAKE) --no-print-directory deps build
	$(under_test)
	MESHCTL_NETNS=require CGO_ENABLED=0 $(GO) test $(TESTFLAGS) -json ./redirect/... ./integration/... | $(GO) run ./internal/tools/testsum

.PHONY: kube-programs
kube-programs: ## etcd and kube-apiserver from Go modules, cached outside the tree (once, some ten minutes)
	@.ci/kube etcd kube-apiserver

.PHONY: kube-test
kube-test: ## discovery from a real Kubernetes API server
	@$(MAKE) --no-print-directory kube-programs build
	MESHCTL_KUBE=require CGO_ENABLED=0 $(GO) test $(TESTFLAGS) -json ./integration/kube/... | $(GO) run ./internal/tools/testsum

.PHONY: kube-e2e
kube-e2e: ## a whole Kubernetes with the real kubelet, and meshctl in it (root; its programs are built once)
	@$(need_root)
	$(MAKE) --no-print-directory deps DEPS='$(KUBEDEPS)'
	$(MAKE) --no-print-directory build
	.ci/kube etcd kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet kube-proxy
	MESHCTL_KUBENODE=1 MESHCTL_NETNS=require MESHCTL_UNDER_TEST=$(CURDIR)/bin/meshctl CGO_ENABLED=0 \
		$(GO) test -count=1 -v -timeout 15m ./integration/kubenode | grep -v '^=== '

.PHONY: kube-scale
kube-scale: ## 5,000 Services and 50,000 endpoints in it: the figures of docs/scale.md
	@$(MAKE) --no-print-directory kube-programs build
	MESHCTL_KUBE=require MESHCTL_KUBE_SCALE=1 CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 30m -run TestScale ./integration/kube

.PHONY: spire
spire: ## the identity with a real SPIRE server and agent (built once, some ten minutes; a C compiler)
	@dir=$${XDG_CACHE_HOME:-$$HOME/.cache}/meshctl/spire/$(SPIRE)
	.ci/spire "$$dir" $(SPIRE)
	started=$$SECONDS
	MESHCTL_SPIRE=$$dir CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 10m ./integration/spire
	echo "took $$((SECONDS - started)) s"

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each
	@grep -rnoE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' . | while IFS=: read -r file _ target; do
		echo "== $${target#func } in $$(dirname "$$file")"
		$(GO) test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"
	done

.PHONY: bench
bench: build ## side by side with HAProxy and nginx (root; BENCHTIME=2s ROUNDS=5 LOADS=http1,bulk1 BENCHNICE=-15)
	@$(need_root)
	$(MAKE) --no-print-directory deps DEPS='$(DEPS) haproxy libnginx-mod-stream'
	MESHCTL_NETNS=require MESHCTL_UNDER_TEST=$(CURDIR)/bin/meshctl BENCHTIME=$(or $(BENCHTIME),2s) ROUNDS=$(or $(ROUNDS),5) \
		setsid --wait $(GO) test -count=1 -v -timeout 2h -run TestCompare ./integration/bench | grep -vE '^ *(---|===)'

.PHONY: microbench
microbench: ## every micro-benchmark of the packages
	@$(GO) test -run '^$$' -bench . -benchmem -p 1 $(PKG)

.PHONY: balancing
balancing: ## draw docs/balancing.svg: what balancing does about a slow endpoint
	@$(GO) run ./internal/tools/balancing >docs/balancing.svg.new
	mv docs/balancing.svg.new docs/balancing.svg

.PHONY: golden
golden: ## rewrite the golden files (then read git diff)
	@grep -rlE 'flag\.Bool\("update"' --include='*_test.go' . | xargs -n1 dirname | sort -u |
		xargs -r -I{} $(GO) test -count=1 -run Golden {} -update

.PHONY: cover
cover: ## test coverage by package and in sum (root sees more)
	@CGO_ENABLED=0 $(GO) test -count=1 -p 2 -coverprofile=cover.out -coverpkg=./... $(PKG) >/dev/null || true
	$(GO) tool cover -func=cover.out | tail -n 1

##@ Quality and packing

.PHONY: lint
lint: ## gofmt, go vet, and golangci-lint or else staticcheck
	@files=$$($$($(GO) env GOROOT)/bin/gofmt -l cmd deploy inject integration internal lint proxy redirect rules)
	if [ -n "$$files" ]; then echo "not formatted (gofmt -w):" >&2; echo "$$files" >&2; exit 1; fi
	$(GO) vet ./...
	if command -v golangci-lint >/dev/null; then golangci-lint run ./...; else $(GO) run $(STATICCHECK) ./...; fi

.PHONY: vuln
vuln: ## govulncheck against a database built from golang.org/x/vulndb
	@dir=$$($(GO) mod download -json $(VULNDB) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')
	$(GO) run ./internal/tools/vulndb "$$dir/data/osv" bin/vulndb
	$(GO) run $(GOVULNCHECK) -db "file://$(CURDIR)/bin/vulndb" ./...

.PHONY: deps
deps: ## install with apt what the tests need and is missing
	@.ci/deps $(DEPS)

.PHONY: docs
docs: build ## rewrite docs/commands.md from the binary's own help
	@$(GO) run ./internal/tools/clidocs bin/meshctl >docs/commands.md.new
	mv docs/commands.md.new docs/commands.md

.PHONY: image
image: build ## build the container image (root; podman or buildah, no registry)
	@$(need_root)
	.ci/image $(IMAGE)

.PHONY: sbom
sbom: build ## write bin/sbom.json: what is in the binary, as CycloneDX
	@$(GO) run ./internal/tools/sbom bin/meshctl $(VERSION) >bin/sbom.json.new
	mv bin/sbom.json.new bin/sbom.json
	echo "bin/sbom.json: $$(grep -c '"bom-ref"' bin/sbom.json) components"

.PHONY: reproducible
reproducible: ## build twice from nothing, elsewhere, and compare
	@.ci/reproducible $(VERSION)

.PHONY: chart
chart: ## render the chart with helm, write what is made from it, test it (builds helm once)
	@MESHCTL_HELM=$$(GO=$(GO) .ci/helm $(HELM))
	export MESHCTL_HELM
	$(GO) test -count=1 -run Golden ./deploy -update
	$(GO) test -count=1 ./deploy
