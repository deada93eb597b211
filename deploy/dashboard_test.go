package deploy

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard is what matters here of Grafana's format.
type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct {
			Name  string
			Query json.RawMessage
		}
	}
	Panels []struct {
		ID      int
		Title   string
		Type    string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("chart/dashboards/proxies.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 20 || d.UID == "" {
		t.Fatalf("%d panels", len(d.Panels))
	}
	return d
}

// expression is what Prometheus is asked once Grafana has put its variables in.
func expression(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$namespace", ".*", "$pod", ".*").Replace(expr)
}

func TestEveryPanelAsksAboutMetricsThatThereAre(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, p := range readDashboard(t).Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			expr, err := parser.ParseExpr(expression(target.Expr))
			if err != nil {
				t.Errorf("%s: %q: %v", p.Title, target.Expr, err)
				continue
			}
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				v, ok := n.(*parser.VectorSelector)
				if ok && !strings.Contains(string(page), "`"+v.Name+"`") && !strings.Contains(string(page), "`"+suffix.ReplaceAllString(v.Name, "")+"`") {
					t.Errorf("%s: docs/metrics.md knows no %s", p.Title, v.Name)
				}
				return nil
			})
		}
	}
}

func TestPanelsDoNotLieOverEachOther(t *testing.T) {
	type cell struct{ x, y int }
	taken := map[cell]string{}
	ids := map[int]bool{}
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] {
			t.Errorf("%s: the number %d is another's", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[cell{x, y}]; other != "" {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[cell{x, y}] = p.Title
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is wider than the page", p.Title)
		}
	}
}
