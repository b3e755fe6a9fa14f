package starter

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"unicode/utf8"

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

	templates = map[string]*template.Template{"numpy": parsed("numpy", numpyText), "torch": parsed("torch", torchText), "tf": parsed("tf", tfText), "count": parsed("count", countText)}
)

func parsed(name, text string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{"py": python, "num": figure, "numbers": numbersDict, "ids": idsDict}).Parse(text))
}

// Column is a column as a program names it.
type Column struct {
	Name        string
	Buckets     int
	Mean, Scale float64
}

// Learns reports whether there is a column to predict, and one to predict it from.
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
		Dataset, About, Run, Label, Model, Column string
		Binary                                    bool
		Mean, Scale                               float64
		Numbers, IDs                              []Column
	}{Dataset: p.Name, About: p.About, Run: run, Numbers: numbers, IDs: ids, Column: "value"}
	if len(p.columns) > 0 {
		about.Column = p.columns[0].name
	}
	if p.Learns() {
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

// python returns s as a literal of Python. JSON text is one, because Go writes no surrogates in it.
func python(s string) string { return dataset.QuoteYAML(s) }

var exponent = regexp.MustCompile(`e[+-]?\d+$`)

// figure writes a number with four digits.
func figure(f float64) string {
	s := strconv.FormatFloat(f, 'g', 4, 64)
	if !strings.ContainsAny(s, ".") && !exponent.MatchString(s) {
		s += ".0"
	}
	return s
}

func numbersDict(columns []Column) string {
	items := make([]string, len(columns))
	for i, c := range columns {
		items[i] = fmt.Sprintf("%s: (%s, %s)", python(c.Name), figure(c.Mean), figure(c.Scale))
	}
	return dict("NUMBERS", items, "column: mean and spread in the first records")
}

func idsDict(columns []Column) string {
	items := make([]string, len(columns))
	for i, c := range columns {
		items[i] = fmt.Sprintf("%s: %d", python(c.Name), c.Buckets)
	}
	return dict("IDS", items, "hashed column: its buckets")
}

// dict is the assignment of a dict in Python: one line if it fits into 120 characters, else
// lines of as many items as fit.
func dict(name string, items []string, comment string) string {
	const width = 120
	one := fmt.Sprintf("%s = {%s}  # %s", name, strings.Join(items, ", "), comment)
	if len(items) == 0 {
		return name + " = {}"
	}
	if utf8.RuneCountInString(one) <= width {
		return one
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s = {  # %s", name, comment)
	left := 0
	for _, item := range items {
		n := utf8.RuneCountInString(item) + len(" ,")
		if n > left {
			b.WriteString("\n   ")
			left = width - len("   ")
		}
		left -= n
		b.WriteString(" " + item + ",")
	}
	b.WriteString("\n}")
	return b.String()
}

// Summary returns a line for each column, for people.
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
