package arrows

// floors says how high each room stands. An import goes down, or stays inside a
// room (rules/nftables uses rules). A package that is not here fails the test: put
// it on a floor and into docs/architecture.md.
var floors = map[string]int{
	"cmd/meshctl": 7,

	"proxy":          6,
	"proxy/inbound":  5,
	"proxy/outbound": 5,
	"proxy/forward":  4,
	"proxy/l7":       3,
	"proxy/admin":    3,
	"proxy/l4":       2,
	"proxy/detect":   2,
	"proxy/metrics":  2,
	"proxy/policy":   2,
	"proxy/conn":     1,
	"proxy/protocol": 1,

	"redirect":       3,
	"rules":          2,
	"rules/nftables": 2,
	"rules/iptables": 2,

	"internal/ports":      1,
	"internal/listen":     1,
	"internal/knownports": 2,
	"internal/demo":       4,
	"internal/arrows":     1,
	"internal/deps":       1,

	"internal/tools/vulndb":  1,
	"internal/tools/testsum": 1,
	"internal/tools/clidocs": 1,

	"integration":             7,
	"integration/conformance": 7,
	"integration/cases":       7,
	"integration/bench":       7,
	"integration/built":       3,
	"integration/lab":         1,
	"integration/servers":     2,
}

// arrow is one allowed import between two packages of this module.
type arrow struct{ from, to, why string }

// arrows are all the imports that code other than tests may make. An arrow that no
// code uses any more fails too: the map shows what is there.
var arrows = []arrow{
	{"cmd/meshctl", "redirect", "the commands that write, read and remove rules"},
	{"cmd/meshctl", "rules", "flags become a rules.Config; explain asks the Plan"},
	{"cmd/meshctl", "rules/nftables", "--dry-run -o nft"},
	{"cmd/meshctl", "rules/iptables", "--dry-run -o iptables"},
	{"cmd/meshctl", "internal/ports", "port lists on the command line"},
	{"cmd/meshctl", "internal/knownports", "the table that meshctl ports prints"},
	{"cmd/meshctl", "internal/listen", "listen addresses on the command line, descriptors handed over"},
	{"cmd/meshctl", "internal/demo", "meshctl demo"},
	{"cmd/meshctl", "proxy", "meshctl proxy"},
	{"cmd/meshctl", "proxy/policy", "the default list of opaque ports"},

	{"redirect", "rules", "puts a Plan into the kernel and compares the kernel with it"},
	{"redirect", "rules/nftables", "the netlink objects of a Plan"},
	{"redirect", "rules/iptables", "the restore text of a Plan"},
	{"redirect", "internal/listen", "binds the listeners before the rules are written"},
	{"rules", "internal/ports", "port sets are part of a Config"},
	{"rules/nftables", "rules", "renders a Plan"},
	{"rules/nftables", "internal/ports", "reads port sets back from the kernel"},
	{"rules/iptables", "rules", "renders a Plan"},
	{"rules/iptables", "internal/ports", "multiport chunks of ports"},

	{"proxy", "proxy/inbound", "one of the two directions"},
	{"proxy", "proxy/outbound", "one of the two directions"},
	{"proxy", "proxy/forward", "serves what the directions choose"},
	{"proxy", "proxy/admin", "serves the admin port"},
	{"proxy", "proxy/metrics", "makes the one place where numbers are kept"},
	{"proxy", "proxy/policy", "what is declared of ports becomes a Policy"},
	{"proxy", "proxy/detect", "makes the memory that both directions share"},
	{"proxy", "proxy/conn", "makes the loops and the listeners"},
	{"proxy", "internal/listen", "listeners opened here or inherited"},
	{"proxy", "internal/ports", "port sets are part of a Config"},
	{"proxy/inbound", "proxy/forward", "answers with a Route"},
	{"proxy/inbound", "proxy/policy", "what is declared of the local port"},
	{"proxy/outbound", "proxy/forward", "answers with a Route"},
	{"proxy/outbound", "proxy/policy", "what is declared of the target's port"},
	{"proxy/forward", "proxy/conn", "drives the two sockets of a connection"},
	{"proxy/forward", "proxy/detect", "asks what the first bytes are"},
	{"proxy/forward", "proxy/l4", "relays"},
	{"proxy/forward", "proxy/l7", "puts an observer beside the relay"},
	{"proxy/forward", "proxy/metrics", "records what happened; the only stage that does"},
	{"proxy/forward", "proxy/protocol", "the kind decides what comes next"},
	{"proxy/forward", "proxy/admin", "describes its connections in the form that /connections shows"},
	{"proxy/policy", "proxy/protocol", "a declared port has a kind"},
	{"proxy/policy", "internal/ports", "the set of opaque ports"},
	{"proxy/detect", "proxy/protocol", "says which kind the bytes are"},
	{"proxy/metrics", "proxy/protocol", "names of kinds in labels"},
	{"proxy/l4", "proxy/conn", "relays between two sockets of one loop"},

	{"internal/knownports", "internal/ports", "the default lists"},
	{"internal/demo", "redirect", "enters the namespaces it makes"},
	{"integration/servers", "integration/lab", "servers listen inside a namespace"},
	{"integration/built", "integration/lab", "runs the program without the test's own settings"},
	{"integration/built", "integration/servers", "runs the program as servers are run"},
}

// library is a dependency that only some packages may use.
type library struct {
	path string   // an import path, or the head of several
	in   []string // the only packages that may import it
	why  string
}

var libraries = []library{
	{"k8s.io/", []string{"proxy/discovery/kube"}, "Kubernetes is one source of targets, not a habit"},
	{"google.golang.org/grpc", []string{"proxy/identity", "proxy/discovery", "integration/servers"}, "gRPC is observed, not spoken, on the data path"},
	{"github.com/spf13/cobra", []string{"cmd/meshctl"}, "flags and help are the command line's"},
	{"github.com/spf13/pflag", []string{"cmd/meshctl"}, "flags and help are the command line's"},
	{"github.com/google/nftables", []string{"redirect", "rules/nftables"}, "one place talks to the packet filter"},
	{"github.com/coreos/go-iptables", []string{"redirect"}, "one place talks to the packet filter"},
	{"github.com/vishvananda/netlink", []string{"redirect", "internal/demo", "integration/lab"}, "links and routes are made for verify, the demo and tests"},
	{"github.com/vishvananda/netns", []string{"redirect", "internal/demo", "integration/lab"}, "whoever makes namespaces enters them"},
	{"github.com/prometheus/", []string{"proxy/metrics"}, "every exported number is on one page"},
	{"net/http/pprof", []string{"proxy/admin"}, "it registers itself with the default mux"},
	{"C", nil, "the binary is static"},
	{"unsafe", []string{"proxy/conn", "redirect"}, "only system calls that golang.org/x/sys/unix does not wrap"},
}
