package starter

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
)

var (
	//go:embed numpy.py.tmpl
	numpyText string
	//go:embed torch.py.tmpl
	torchText string
	//go:embed tf.py.tmpl
	tfText string
	//go:embed count.py.tmpl
	countText string
	//go:embed alone.py.tmpl
	aloneText string

	templates = map[string]*template.Template{"numpy": parsed("numpy", numpyText), "torch": parsed("torch", torchText), "tf": parsed("tf", tfText), "count": parsed("count", countText)}
)

func parsed(name, text string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{"py": python, "num": figure}).Parse(aloneText + text))
}

// ranks says how several ranks train one model, which the programs here do not, and the page of it.
var ranks = map[string][2]string{
	"numpy": {"needs DDP, as in torch", "torch.md"},
	"torch": {"needs DDP", "torch.md"},
	"tf":    {"needs parameter servers", "tensorflow.md#parameter-servers"},
}

// Column is a column as a program names it.
type Column struct {
	Name        string
	Buckets     int
	Mean, Scale float64
}

// Learns reports whether there is something to predict from something.
func (p *Plan) Learns() bool {
	numbers, ids := p.inputs()
	return p.label >= 0 && len(numbers)+len(ids) > 0
}

func (p *Plan) inputs() (numbers, ids []Column) {
	for _, c := range p.columns {
		switch c.role {
		case number:
			numbers = append(numbers, Column{Name: c.name, Mean: c.mean, Scale: c.scale})
		case id:
			ids = append(ids, Column{Name: c.name, Buckets: c.buckets})
		}
	}
	return numbers, ids
}

// Program is a program that trains on the plan's dataset: with is "numpy", "torch" or "tf". run
// is the command that starts it.
func (p *Plan) Program(with, run string) (string, error) {
	numbers, ids := p.inputs()
	about := struct {
		Dataset, About, Run, Label, Model, Column, Wait string
		Ranks, Page                                     string
		Binary                                          bool
		Mean, Scale                                     float64
		Numbers, IDs                                    []Column
	}{Dataset: p.Name, About: p.About, Run: run, Numbers: numbers, IDs: ids, Column: "value"}
	if len(p.columns) > 0 {
		about.Column = p.columns[0].name
	}
	if p.Learns() {
		about.Ranks, about.Page = ranks[with][0], ranks[with][1]
		l := p.columns[p.label]
		about.Label, about.Binary, about.Mean, about.Scale = l.name, l.binary, l.mean, l.scale
		about.Model = "linear regression"
		if l.binary {
			about.Model = "logistic regression"
		}
		if with != "numpy" {
			about.Model = "a small network"
		}
	} else {
		with = "count"
	}
	var b strings.Builder
	if err := templates[with].Execute(&b, about); err != nil {
		return "", advice.Failed.Errorf("", "the program for %s cannot be written: %w", p.Name, err)
	}
	return b.String(), nil
}

// python is s as a literal of Python: JSON's is one, if it has no surrogate.
func python(s string) string { return dataset.QuoteYAML(s) }

var exponent = regexp.MustCompile(`e[+-]?\d+$`)

// figure is a number as people write it.
func figure(f float64) string {
	s := strconv.FormatFloat(f, 'g', 4, 64)
	if !strings.ContainsAny(s, ".") && !exponent.MatchString(s) {
		s += ".0"
	}
	return s
}

// Summary says in a line for each column what was found.
func (p *Plan) Summary() []string {
	var lines []string
	for i, c := range p.columns {
		what := c.dtype
		switch {
		case i == p.label:
			what += ", to predict"
		case c.buckets > 0:
			what = fmt.Sprintf("hashed into %d buckets", c.buckets)
		case c.role == text:
			what += ", not used by the program"
		}
		lines = append(lines, fmt.Sprintf("%s: %s", c.name, what))
	}
	if p.eventTime != "" {
		lines = append(lines, p.eventTime+": the time of a record")
	}
	return lines
}
