package dataset

import (
	"strings"
	"testing"
)

const specWithVariables = `# ${NOT_IN_A_COMMENT}
name: ${NAME}
files: {root: "${ROOT}/day", paths: ["${DAY:-*}.tsv", 'a$${b}']}
decode:
  format: tsv
  columns: [{name: id, path: "0", dtype: int64}]
passes: ${PASSES:-2}
`

func TestVariablesOfTheEnvironmentStandInASpec(t *testing.T) {
	t.Setenv("NAME", "clicks")
	t.Setenv("ROOT", `data: "x" # y`) // would break the YAML if it were not quoted
	docs, err := Documents([]byte(specWithVariables), "c.yaml", "/here")
	if err != nil {
		t.Fatal(err)
	}
	s := docs[0].Spec
	if s.Name != "clicks" || s.Passes != 2 || s.Folders()[0] != `/here/data: "x" # y/day` || !strings.Contains(string(docs[0].YAML), `["*.tsv", "a${b}"]`) {
		t.Errorf("%+v\n%s", s, docs[0].YAML)
	}
	if strings.Count(string(docs[0].YAML), "\n") != strings.Count(specWithVariables, "\n") {
		t.Errorf("lines have moved:\n%s", docs[0].YAML)
	}
}

func TestAVariableThatCannotStandInASpecIsNamedWithItsLine(t *testing.T) {
	t.Setenv("EMPTY", "")
	t.Setenv("HEADRACE_KAFKA_PASSWORD", "x")
	t.Setenv("DB_PASSWORD", "x")
	for text, want := range map[string]string{
		"name: a\n---\nname: ${NOT_SET}\n": `c.yaml:3: "${NOT_SET}": the variable NOT_SET is not set; set it, or write ${NOT_SET:-default}`,
		"name: ${EMPTY}\n":                 `c.yaml:1: "${EMPTY}": the variable EMPTY is empty`,
		"name: ${HEADRACE_KAFKA_PASSWORD}": "may hold a secret, and a spec is shown to everybody; name it with password_env",
		"name: ${DB_PASSWORD:-x}":          "the variable DB_PASSWORD may hold a secret",
		"name: ${a b}":                     "${a b} is no variable; write ${NAME} or ${NAME:-default}",
		"name: ${a":                        "${a is no variable",
		"name: |\n  ${EMPTY:-x}\n":         "is not written plainly on one line",
		"a: ${A_1}\nb: [x, '${A_2}']\n":    "c.yaml:2: \"${A_2}\": the variable A_2 is not set",
		"b: [x, ${A_2}]\n":                 "a value with ${ inside of [ ] or { } needs quotes",
	} {
		_, err := Documents([]byte(text), "c.yaml", "/here")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestVariablesInUnusualTextEndInAnError(t *testing.T) {
	t.Setenv("ROOT", "/data")
	for _, text := range []string{
		"name: d\rdecode: lines\rx: ${ROOT}\r", "name: d\u0085x: ${ROOT}", "name: d\u2028decode: lines\u2028x: ${ROOT}\n",
		"x: &a\n  ${ROOT}\n", "x: &a\r  ${ROOT}\n",
	} {
		out, err := withVariables([]byte(text), "d.yaml", 0)
		if err == nil || !strings.Contains(err.Error(), "is not written plainly on one line") {
			t.Errorf("%q: %q, %v", text, out, err)
		}
	}
	if out, err := withVariables([]byte("\ufeffx: ${ROOT}\n"), "d.yaml", 0); err != nil || string(out) != "x: \"/data\"\n" {
		t.Errorf("with a byte order mark: %q, %v", out, err)
	}
}
