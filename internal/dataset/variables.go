package dataset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// variable is ${NAME}, ${NAME:-default}, or $${ for a plain ${.
var variable = regexp.MustCompile(`\$\$\{|\$\{([^}]*)\}?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// secretLike are names of variables that probably hold a secret.
var secretLike = regexp.MustCompile(`(?i)PASSW|SECRET|TOKEN|CREDENTIAL|(ACCESS|PRIVATE|API)_?KEY`)

// withVariables puts environment variables into the values of a spec's text, where they are written
// ${NAME} or ${NAME:-default}. A value never changes the shape of the text: it is quoted. The
// error is a SpecErrors that names each variable and its line. before is how many lines
// stand before the text in its file.
func withVariables(text []byte, filename string, before int) ([]byte, error) {
	if !bytes.Contains(text, []byte("${")) {
		return text, nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // a byte order mark has no column
	var found []*yaml.Node
	docs := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if err := docs.Decode(&doc); err == io.EOF {
			break
		} else if err != nil {
			e := syntaxError(err, filename)
			e.Allowed = "a value with ${ inside of [ ] or { } needs quotes, as in [\"${NAME}\"]"
			return nil, SpecErrors{e}
		}
		found = scalarsWithVariables(&doc, found)
	}
	// From the right to the left, so that the columns of a line stay right.
	slices.SortStableFunc(found, func(a, b *yaml.Node) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return b.Column - a.Column
	})
	lines := bytes.SplitAfter(text, []byte("\n"))
	var errs SpecErrors
	fail := func(n *yaml.Node, reason, allowed string) {
		errs = append(errs, &SpecError{File: filename, Line: before + n.Line, Value: n.Value, Reason: reason, Allowed: allowed})
	}
	for _, n := range found {
		value, reason, allowed := expandValue(n.Value)
		if reason != "" {
			fail(n, reason, allowed)
			continue
		}
		if !replaceScalar(lines, n, value) {
			fail(n, "is not written plainly on one line", "write a value with a variable without escapes")
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return bytes.Join(lines, nil), nil
}

// scalarsWithVariables finds values, not names of fields.
func scalarsWithVariables(n *yaml.Node, found []*yaml.Node) []*yaml.Node {
	switch n.Kind {
	case yaml.ScalarNode:
		if strings.Contains(n.Value, "${") {
			found = append(found, n)
		}
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			found = scalarsWithVariables(n.Content[i], found)
		}
	default:
		for _, c := range n.Content {
			found = scalarsWithVariables(c, found)
		}
	}
	return found
}

// expandValue gives the value, or the reason why there is none.
func expandValue(text string) (value, reason, allowed string) {
	value = variable.ReplaceAllStringFunc(text, func(match string) string {
		if match == "$${" {
			return "${"
		}
		name, byDefault, hasDefault := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(match, "${"), "}"), ":-")
		switch v, set := os.LookupEnv(name); {
		case reason != "":
		case !strings.HasSuffix(match, "}") || !variableName.MatchString(name):
			reason, allowed = fmt.Sprintf("%s is no variable", match), "write ${NAME} or ${NAME:-default}; $${ stands for ${"
		case strings.HasPrefix(name, SecretPrefix) || secretLike.MatchString(name):
			reason = fmt.Sprintf("the variable %s may hold a secret, and a spec is shown to everybody", name)
			allowed = "name it with password_env, or choose another name"
		case v != "":
			return v
		case hasDefault:
			return byDefault
		case !set:
			reason, allowed = fmt.Sprintf("the variable %s is not set", name), "set it, or write ${"+name+":-default}"
		default:
			reason, allowed = fmt.Sprintf("the variable %s is empty", name), "set it, or write ${"+name+":-default}"
		}
		return ""
	})
	return value, reason, allowed
}

// replaceScalar writes value in place of a scalar that stands plainly on one line.
func replaceScalar(lines [][]byte, n *yaml.Node, value string) bool {
	if n.Line > len(lines) { // YAML has more line ends than ours: \r alone, U+0085, U+2028, U+2029
		return false
	}
	line := []rune(string(lines[n.Line-1]))
	if n.Column-1 > len(line) {
		return false
	}
	rest, anchor := string(line[n.Column-1:]), ""
	if strings.HasPrefix(rest, "&") {
		name, _, more := strings.Cut(rest, " ")
		if !more {
			return false // the value stands on the next line
		}
		anchor = name + " "
	}
	forms := []string{n.Value, `"` + n.Value + `"`, `'` + n.Value + `'`}
	if quoted, err := json.Marshal(n.Value); err == nil { // as this function writes it
		forms = append(forms, string(quoted))
	}
	for _, written := range forms {
		after, ok := strings.CutPrefix(rest, anchor+written)
		if !ok {
			continue
		}
		quoted, err := json.Marshal(value) // JSON text is YAML too
		if err != nil {
			return false
		}
		lines[n.Line-1] = []byte(string(line[:n.Column-1]) + anchor + string(quoted) + after)
		return true
	}
	return false
}
