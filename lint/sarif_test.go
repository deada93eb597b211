package lint

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// sarif is the schema that OASIS publishes for version 2.1.0.
func sarif(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../testdata/sarif/sarif-schema-2.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate holds a log against the schema, and returns its text.
func validate(t *testing.T, schema *jsonschema.Schema, log Sarif) string {
	t.Helper()
	text, err := json.Marshal(log)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestSarifIsWhatItsSchemaWants(t *testing.T) {
	schema := sarif(t)
	validate(t, schema, ToSarif(nil, ""))
	for _, e := range examples(t) {
		validate(t, schema, ToSarif(e.look("bad"), "1.2.3"))
	}
	wrong, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"version": "2.1.0", "runs": [{"results": []}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if schema.Validate(wrong) == nil {
		t.Error("the schema takes a run without a tool: it is not that of SARIF")
	}
}

// What no schema can say: each result's index leads to its rule.
func TestSarifResultsLeadToTheirRules(t *testing.T) {
	for _, e := range examples(t) {
		log := ToSarif(e.look("bad"), "")
		for _, r := range log.Runs[0].Results {
			if got := log.Runs[0].Tool.Driver.Rules[r.RuleIndex].ID; got != r.RuleID {
				t.Errorf("%s leads to the rule %s", r.RuleID, got)
			}
		}
	}
}

func TestAFindingFromAClusterHasNoFile(t *testing.T) {
	w := newWorld(nil, Config{})
	w.find(SelectsNothing, &Object{Kind: "Service", Namespace: "shop", Name: "web"}, "spec.selector", "", "nothing")
	log := ToSarif(w.findings, "")
	validate(t, sarif(t), log)
	if l := log.Runs[0].Results[0].Locations[0]; l.Physical != nil || l.Logical[0].Name != "Service shop/web" {
		t.Errorf("%+v", l)
	}
}
