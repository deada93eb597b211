# The image of meshctl: one static binary, no shell, no libraries. Build it with
# `make image`, which compiles bin/image/meshctl and gives it its capabilities.
#
# The file capabilities are in the permitted set only (`=p`, no `e`): so one image
# serves as an init container that runs as a non-root user with NET_ADMIN added, and
# as a sidecar with every capability dropped, where `+ep` would make exec fail.
FROM scratch
COPY bin/image/meshctl /meshctl
# The init container writes rules by netlink; the proxy runs as the uid whose
# traffic the rules leave alone.
USER 2102:2102
ENTRYPOINT ["/meshctl"]
