package file

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/table"
	"github.com/meshctl/meshctl/proxy/policy"
)

func TestFilesSayWhatTheTableSays(t *testing.T) {
	table.Run(t, table.Config{Open: func(t *testing.T, namespace string) (discovery.Resolver, func(string)) {
		name := filepath.Join(t.TempDir(), "objects.yaml")
		write := func(objects string) {
			if err := os.WriteFile(name, []byte(objects), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("")
		r := NewReader(Config{Paths: []string{name}, Cluster: cluster.Config{Namespace: namespace, Opaque: policy.DefaultOpaque()}})
		load := func() *cluster.Snapshot {
			s, report := r.Load()
			if err := report.Err(); err != nil {
				t.Fatal(err)
			}
			return s
		}
		c := discovery.NewCache(discovery.CacheConfig{}, load())
		return c, func(objects string) { write(objects); c.Replace(load()) }
	}, Within: 1})
}
