package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
)

// An error about an end, or about bit_exact, names what the user wrote, and its advice is accepted by the source. There is one error for one mistake.
func TestErrorsAboutAnEndNameWhatTheUserWrote(t *testing.T) {
	const (
		kafka  = "kafka: {brokers: [k:9092], topic: t%s}\n"
		pulsar = "pulsar: {service: pulsar://b:6650, admin: http://b:8080, topic: t%s}\n"
		rocket = "rocketmq: {name_servers: [mq:9876], topic: t%s}\n"
		never  = ", end: never"
		exact  = "bit_exact: {virtual_ranks: 4}\n"
		old    = "backfill: {files: {root: /d%s}}\n"
	)
	of := func(part, more string) string { return fmt.Sprintf(part, more) }
	for _, c := range []struct{ spec, want string }{
		{"files: {root: /d, end: never}\n" + exact, "bit_exact: does not go with files.end: never: only input that has an end is dealt out in blocks; remove bit_exact, or remove files.end"},
		{"files: {root: /d, end: never}\nshuffle: {seed: 1}\n", "shuffle: does not go with files.end: never: a permutation needs all of the input before it is read; remove shuffle, or remove files.end"},
		{"files: {root: /d, end: never}\npasses: 2\n", `passes: "2": does not go with files.end: never: such input is read once, as it comes; remove passes, or remove files.end`},
		{of(kafka, never) + exact, "bit_exact: does not go with kafka.end: never: only input that has an end is dealt out in blocks; remove bit_exact, or set kafka.end: latest"},
		{of(kafka, never) + "passes: 2\n", `passes: "2": does not go with kafka.end: never: such input is read once, as it comes; remove passes, or set kafka.end: latest`},
		{of(kafka, ", group: g") + exact, "bit_exact: does not go with kafka.group: the progress in dealt out blocks is no offset of a partition; remove one of them"},
		{"landing: {}\n" + exact, "bit_exact: does not go with landing: its records come as they are pushed; remove bit_exact, or read from files or kafka"},
		{"landing: {end: pushed}\n" + exact, "bit_exact: does not go with landing: its records come as they are pushed; remove bit_exact, or read from files or kafka"},
		{"landing: {end: pushed}\nshuffle: {seed: 1}\n", "shuffle: does not go with landing: a permutation needs all of the input before it is read; remove shuffle"},
		{"landing: {end: pushed}\npasses: 2\n", `passes: "2": does not go with landing: such input is read once, as it comes; remove passes`},
		{of(pulsar, "") + exact, "bit_exact: does not go with pulsar: positions of a batch are not known before it is read; remove bit_exact, or read from files or kafka"},
		{of(pulsar, ", subscription: s") + exact, "bit_exact: does not go with pulsar: positions of a batch are not known before it is read; remove bit_exact, or read from files or kafka"},
		{of(pulsar, never) + "shuffle: {seed: 1}\n", "shuffle: does not go with pulsar.end: never: a permutation needs all of the input before it is read; remove shuffle, or set pulsar.end: latest"},
		{of(rocket, never+", group: g") + exact, "bit_exact: does not go with rocketmq: its queues are not read as one sequence; remove bit_exact, or read from files or kafka"},

		{of(old, "") + of(kafka, ""), "backfill: comes before a source without an end, and kafka has one here; set kafka.end: never"},
		{of(old, "") + of(kafka, never) + "passes: 2\n", `passes: "2": does not go with kafka.end: never: such input is read once, as it comes; remove passes`},
		{of(old, "") + "landing: {end: pushed}\n", "backfill: comes before a source without an end, and producers may end this one; remove landing.end"},
		{of(old, never) + of(kafka, never), `backfill.files.end: "never": does not go with backfill: the history ends where the live source begins; remove it`},
		{of(old, "") + "files: {root: /d}\n", "backfill: comes before a live source of another kind, and both are files; files that come later need no backfill: write one files: with end: never"},

		{of(kafka, "") + "catch_up: {drop_older_than: 1h}\n", `catch_up.drop_older_than: "1h0m0s": is for a source without an end; set kafka.end: never, or begin later with kafka.start`},
		{"files: {root: /d, end: never}\ncatch_up: {drop_older_than: 1h}\n", `catch_up.drop_older_than: "1h0m0s": does not go with files, which does not find records by their time; it is for live input: kafka.end: never, pulsar.end: never, rocketmq.end: never`},
	} {
		_, err := dataset.Parse([]byte("name: clicks\n"+c.spec+"decode: lines\n"), "")
		if err == nil {
			t.Errorf("%s\nis accepted, want the error\n%s", c.spec, c.want)
			continue
		}
		errs, _ := err.(dataset.SpecErrors)
		if len(errs) != 1 {
			t.Errorf("%s\nhas %d errors, want one:\n%v", c.spec, len(errs), err)
			continue
		}
		errs[0].Line = 0
		if got := errs[0].Error(); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.spec, got, c.want)
		}
	}
}

// The master and the errors about specs rely on what a kind declares about its fields. So the
// declarations are compared with the fields.
func TestWhatAKindDeclaresOfItsFieldsIsTrue(t *testing.T) {
	for _, k := range dataset.Kinds() {
		part := k.New()
		part.Fill()
		traits := part.Traits()
		if k.Inexact == "" && traits.Progress != "" {
			t.Errorf("%s: it always keeps its progress (%s), which does not go with bit_exact: declare Inexact", k.Name, traits.Progress)
		}
		if traits.Progress != "" && traits.ProgressField != "" {
			t.Errorf("%s: ProgressField is %s, and no spec has set it", k.Name, traits.ProgressField)
		}
		if traits.Live != k.End.Always {
			t.Errorf("%s: a spec without %s is live: %v, and End says always: %v", k.Name, k.End.Field, traits.Live, k.End.Always)
		}
		if k.Backfills && k.End.Always {
			t.Errorf("%s: a history has an end, and all its input is live", k.Name)
		}
		names := membersOf(k)
		for _, field := range []string{k.Start, k.End.Field} {
			if field != "" && !slices.Contains(names, field) {
				t.Errorf("%s: it declares the field %s, and its fields are %v", k.Name, field, names)
			}
		}
		if k.End.Field == "" || k.End.Always {
			continue
		}
		for value, live := range map[string]bool{k.End.Never: true, k.End.Fixed: false} {
			if value == "" {
				continue
			}
			if s := ofKind(t, k, k.End.Field+": "+value); s.Live() != live {
				t.Errorf("%s.%s: %s is live: %v, want %v", k.Name, k.End.Field, value, s.Live(), live)
			}
		}
	}
}

// ofKind parses the example of a kind, with more fields.
func ofKind(t *testing.T, k dataset.Kind, more string) *dataset.Spec {
	t.Helper()
	part := strings.Replace(k.Example, "/data/clicks", t.TempDir(), 1) // a folder that is there
	if more != "" {
		part = strings.Replace(strings.TrimSuffix(part, "}")+", "+more+"}", "{, ", "{", 1)
	}
	s, err := dataset.Parse([]byte("name: clicks\n"+part+"\ndecode: lines\n"), "")
	if err != nil {
		t.Fatalf("%s: %v", part, err)
	}
	return s
}

// membersOf are the names of a kind's fields.
func membersOf(k dataset.Kind) []string {
	var names []string
	for _, m := range k.New().Members(&dataset.Reader{}) {
		names = append(names, m.Name)
	}
	return names
}
