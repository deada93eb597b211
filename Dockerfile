# The image of meshctl from source: one static binary, no shell, no libraries.
#
#   docker build --build-arg VERSION=1.2.3 -t meshctl .
#   podman build --build-arg VERSION=1.2.3 -t meshctl .
#
# `make image` makes the same from bin/meshctl, without a registry.
FROM docker.io/library/golang:1.27.3 AS build
WORKDIR /src
# The modules first: they change less often than the rest.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 GOTOOLCHAIN=local go build -tags grpcnotrace -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=${VERSION}" -o /out/meshctl ./cmd/meshctl
# In the permitted set only (`=p`, no `e`): so one image serves as an init container
# that runs as a non-root user with NET_ADMIN added, and as a sidecar with every
# capability dropped, where `+ep` would make exec fail.
RUN GOTOOLCHAIN=local go run ./internal/tools/filecaps /out/meshctl

FROM scratch
COPY --from=build /out/meshctl /meshctl
# The init container writes rules by netlink; the proxy runs as the uid whose
# traffic the rules leave alone.
USER 2102:2102
ENTRYPOINT ["/meshctl"]
