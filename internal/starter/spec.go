package starter

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/headrace/headrace/internal/dataset"
)

// source returns the beginning of a spec: its name and what is read.
func (p *Plan) source() string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\n%s:\n", plain(p.Name), p.origin.kind)
	for _, f := range p.origin.fields {
		b.WriteString("  " + f + "\n")
	}
	return b.String()
}

// Spec is the plan as YAML.
func (p *Plan) Spec() string {
	var b strings.Builder
	b.WriteString(p.source())
	if p.origin.topic {
		b.WriteString("  # end: never          # read on as records come; without it, to where the topic ends now\n")
	}
	if len(p.columns) == 0 {
		fmt.Fprintf(&b, "decode: %s\n", p.layout.format)
		return b.String()
	}
	fmt.Fprintf(&b, "decode:\n  format: %s\n", p.layout.format)
	if p.layout.format == "csv" && p.layout.delimiter != ',' {
		fmt.Fprintf(&b, "  delimiter: %s\n", dataset.QuoteYAML(string(p.layout.delimiter)))
	}
	if p.layout.header {
		b.WriteString("  header: true\n")
	}
	if p.eventTime != "" {
		fmt.Fprintf(&b, "  event_time: %s\n", plain(p.eventTime))
	}
	b.WriteString("  columns:\n")
	for i := range p.columns {
		b.WriteString("    " + p.columns[i].yaml() + "\n")
	}
	return b.String()
}

func (c *column) yaml() string {
	line := fmt.Sprintf("- {name: %s, path: %s, dtype: %s", plain(c.name), plain(c.path), c.dtype)
	if c.buckets > 0 {
		line += fmt.Sprintf(", hash: {buckets: %d}", c.buckets)
	}
	if c.fill != "" {
		line += ", default: " + c.fill
	}
	line += "}"
	if c.comment != "" {
		line += "  # " + c.comment
	}
	return line
}

// File is the spec with a few words of how to go on.
func (p *Plan) File(specName, run string) string {
	looked := ""
	if len(p.columns) > 0 {
		looked = fmt.Sprintf(" Types and ids are guessed from the first %d records; the spec was tried on %d.", p.looked, p.Records)
	}
	return fmt.Sprintf(`# Written by `+"`headrace init`"+` for %s.%s
# Change it as you like, then
#
#     headrace check -f %s    how many records cannot be decoded, by field
#     %s
#
# Every field: https://github.com/headrace/headrace/blob/main/docs/DATASETS.md
`, p.About, looked, specName, run) + p.Spec()
}

var safe = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_/*.-]*$`)

// plain writes a YAML scalar. It quotes s if YAML could misread it.
func plain(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n", "":
		return dataset.QuoteYAML(s)
	}
	if safe.MatchString(s) {
		return s
	}
	return dataset.QuoteYAML(s)
}
