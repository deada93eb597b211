package lint

import (
	"net/url"
	"path/filepath"
)

// The names of the format, of the version that code hosts read.
const (
	sarifVersion = "2.1.0"
	sarifSchema  = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	project      = "https://github.com/meshctl/meshctl"
)

// Sarif is a log in the Static Analysis Results Interchange Format 2.1.0 (OASIS),
// as far as it is needed here. Encode it as JSON.
type Sarif struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool       sarifTool     `json:"tool"`
	ColumnKind string        `json:"columnKind"`
	Results    []sarifResult `json:"results"` // an empty list says that nothing was found
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name           string      `json:"name"`
	Version        string      `json:"version,omitempty"`
	InformationURI string      `json:"informationUri"`
	Rules          []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID      Code      `json:"id"`
	Name    string    `json:"name"`
	Short   sarifText `json:"shortDescription"`
	HelpURI string    `json:"helpUri"`
	Default struct {
		Level Severity `json:"level"`
	} `json:"defaultConfiguration"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifResult struct {
	RuleID    Code            `json:"ruleId"`
	RuleIndex int             `json:"ruleIndex"`
	Level     Severity        `json:"level"`
	Message   sarifText       `json:"message"`
	Locations []sarifLocation `json:"locations,omitempty"`
}

type sarifLocation struct {
	Physical *sarifPhysical `json:"physicalLocation,omitempty"`
	Logical  []sarifLogical `json:"logicalLocations,omitempty"`
}

type sarifPhysical struct {
	Artifact struct {
		URI string `json:"uri"`
	} `json:"artifactLocation"`
	Region struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	} `json:"region"`
}

type sarifLogical struct {
	Name string `json:"fullyQualifiedName"`
	Kind string `json:"kind"`
}

// ToSarif makes a log of findings; version is that of the program.
func ToSarif(findings []Finding, version string) Sarif {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "meshctl lint", Version: version, InformationURI: project}
	index := map[Code]int{}
	for i, r := range Rules() {
		index[r.Code] = i
		rule := sarifRule{ID: r.Code, Name: r.Name, Short: sarifText{r.Title + "."}, HelpURI: project + "/blob/main/docs/lint.md#" + r.Anchor()}
		rule.Default.Level = r.Severity
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
	}
	for _, f := range findings {
		run.Results = append(run.Results, sarifResult{
			RuleID: f.Code, RuleIndex: index[f.Code], Level: f.Severity, Message: sarifText{f.message()}, Locations: f.locations(),
		})
	}
	return Sarif{Schema: sarifSchema, Version: sarifVersion, Runs: []sarifRun{run}}
}

// message is the finding without its place.
func (f Finding) message() string {
	text := f.Text
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Fix != "" {
		text += ": " + f.Fix
	}
	return text
}

func (f Finding) locations() []sarifLocation {
	var l sarifLocation
	if f.File != "" {
		l.Physical = &sarifPhysical{}
		l.Physical.Artifact.URI = (&url.URL{Path: filepath.ToSlash(f.File)}).String()
		l.Physical.Region.StartLine, l.Physical.Region.StartColumn = f.Line, f.Column
	}
	if f.Object != "" {
		l.Logical = []sarifLogical{{Name: f.Object, Kind: "object"}}
	}
	if l.Physical == nil && l.Logical == nil {
		return nil
	}
	return []sarifLocation{l}
}
