package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/minio/crc64nvme"
)

var rewrite = flag.Bool("rewrite", false, "write api/vectors/manifest from the code")

const vectors = "../../api/vectors/manifest"

// vector is one file of api/vectors/manifest, with the result that a reader must get.
type vector struct {
	File  string               `json:"file"`
	OK    bool                 `json:"ok"`
	Kind  string               `json:"kind,omitempty"`  // damaged | newer | invalid
	Field string               `json:"field,omitempty"` // the field that is invalid
	Step  int64                `json:"step,omitempty"`
	Epoch uint32               `json:"epoch,omitempty"`
	Cut   string               `json:"cut,omitempty"`
	Rank  *uint32              `json:"rank,omitempty"`
	Exact bool                 `json:"exact,omitempty"`
	Order uint64               `json:"order,omitempty"`
	Needs []cut.ID             `json:"needs,omitempty"` // known of a newer one, too
	Bytes int64                `json:"bytes,omitempty"` // of all files together
	Units map[string]cut.Units `json:"units,omitempty"` // by dataset, all passes

	Records map[string]cut.Tally `json:"records,omitempty"` // by dataset, all passes
}

// bad returns manifests that every reader must refuse. Each is a good one with one change.
func bad(t *testing.T) map[string]struct {
	text  []byte
	kind  error
	field string
} {
	out := map[string]struct {
		text  []byte
		kind  error
		field string
	}{}
	whole := encoded(t, good()["sharded"])
	drops := encoded(t, good()["dropped"])
	add := func(name string, kind error, field string, text []byte) {
		out[name] = struct {
			text  []byte
			kind  error
			field string
		}{text, kind, field}
	}
	add("empty", ErrDamaged, "", nil)
	add("cut_off", ErrDamaged, "", whole[:len(whole)/2])
	add("zeros_behind", ErrDamaged, "", append(slices.Clone(whole), make([]byte, 100)...))
	add("one_digit_changed", ErrDamaged, "", bytes.Replace(whole, []byte(`[1,300,460]`), []byte(`[1,300,461]`), 1))
	add("no_checksum", ErrDamaged, "", append(slices.Clone(whole[:len(whole)-sumLength]), "}\n"...))
	add("another_format", ErrDamaged, "", []byte(`{"format":"ocdbt"}`))
	change := func(name string, kind error, field string, old, new string) {
		text := string(whole[:len(whole)-sumLength])
		if !strings.Contains(text, old) {
			t.Fatalf("%s: no %s to change", name, old)
		}
		b := []byte(strings.Replace(text, old, new, 1))
		b = append(b, sumKey+CRC64(crc64nvme.Checksum(b)).String()+sumEnd...)
		add(name, kind, field, b)
	}
	change("newer", ErrNewer, "version", `"version":1,"job"`, `"version":2,"job"`)
	change("newer_unlike_ours", ErrNewer, "version", `"version":1,"job":"default"`, `"version":7,"job":["default"]`)
	change("newer_cut", ErrNewer, "version", `"cut":{"version":1`, `"cut":{"version":2`)
	change("escapes", ErrInvalid, "files[0].path", `"model-rank-0.safetensors","size"`, `"../model.safetensors","size"`)
	change("absolute", ErrInvalid, "files[0].path", `"model-rank-0.safetensors","size"`, `"/etc/passwd","size"`)
	change("backslash", ErrInvalid, "files[0].path", `"model-rank-0.safetensors","size"`, `"..\\model.safetensors","size"`)
	change("names_itself", ErrInvalid, "files[0].path", `"model-rank-0.safetensors","size"`, `"headrace-manifest.json","size"`)
	change("twice", ErrInvalid, "files[1].path", `"model-rank-1.safetensors","size"`, `"model-rank-0.safetensors","size"`)
	change("size_is_text", ErrInvalid, "files.size", `"size":4096`, `"size":"4096"`)
	change("unknown_model", ErrInvalid, "model", `"model":"replicated"`, `"model":"copied"`)
	change("other_step", ErrInvalid, "cut.step", `"step":130,"exact"`, `"step":131,"exact"`)
	change("rank_of_a_group", ErrInvalid, "rank", `"step":130,"world_size"`, `"step":130,"rank":1,"world_size"`)
	change("inexact", ErrInvalid, "cut.exact", `"exact":true`, `"exact":false`)
	change("outside_its_segment", ErrInvalid, "cut.datasets[0].partitions[0].passes[0].ranges.acked[1]", `[1,1000,1200]`, `[1,1000,2001]`)
	change("unknown_segment", ErrInvalid, "cut.datasets[0].partitions[0].passes[0].ranges.acked[1]", `[1,1000,1200]`, `[2,1000,1200]`)
	change("unsorted", ErrInvalid, "cut.datasets[0].partitions[0].passes[0].ranges.acked[1]", `[1,300,460],[1,1000,1200]`, `[1,1000,1200],[1,300,460]`)
	change("two_kinds_at_once", ErrInvalid, "cut.datasets[0].partitions[0].passes[0].ranges.excluded[0]", `"excluded":[[1,460,500]]`, `"excluded":[[1,459,500]]`)
	change("below_the_low_mark", ErrInvalid, "cut.datasets[0].partitions[0].passes[0].ranges.acked[0]", `[1,300,460]`, `[1,249,460]`)
	change("low_outside", ErrInvalid, "cut.datasets[0].partitions[0].passes[0].low", `"low":[1,250]`, `"low":[0,1001]`)
	change("pass_again", ErrInvalid, "cut.datasets[0].partitions[0].passes[0].pass", `"passes":[{"pass":1`, `"passes":[{"pass":0`)
	change("past_the_last_block", ErrInvalid, "cut.datasets[2].partitions[0].passes[0].ranges.acked[0]", `[0,200,300]`, `[0,200,449]`)
	change("segments_unsorted", ErrInvalid, "cut.datasets[0].partitions[0].segments[1].id", `{"id":1,"start":0,"end":2000`, `{"id":0,"start":0,"end":2000`)
	change("range_of_four", ErrInvalid, "ranges.acked[0]", `[1,300,460]`, `[1,300,460,4]`)
	change("too_large_a_number", ErrInvalid, "cut.step", `"step":130,"exact"`, `"step":9223372036854775808,"exact"`)
	change("more_untold_than_acked", ErrInvalid, "cut.datasets[0].partitions[0].passes[0].records.untold", `"untold":310`, `"untold":1611`)
	change("fewer_than_no_rows", ErrInvalid, "cut.datasets[0].partitions[0].passes[0].records.rows", `"rows":11`, `"rows":-11`)
	change("oldest_after_newest", ErrInvalid, "cut.datasets[0].partitions[0].done_records.oldest", `"oldest":1763990000001`, `"oldest":1763999999999999`)
	change("times_of_no_rows", ErrInvalid, "cut.datasets[0].partitions[0].done_records.newest", `"rows":29`, `"rows":0`)
	first := "cut.datasets[0].partitions[0]"
	change("dataset_twice", ErrInvalid, "cut.datasets[1].name", `"name":"events","unit"`, `"name":"clicks","unit"`)
	change("unknown_unit", ErrInvalid, "cut.datasets[0].unit", `"name":"clicks","unit":"bytes"`, `"name":"clicks","unit":"rows"`)
	change("name_with_a_control_character", ErrInvalid, "cut.datasets[0].name", `"name":"clicks"`, `"name":"cli\u0007cks"`)
	change("no_identity", ErrInvalid, first+".identity", `"identity":"files:clicks"`, `"identity":""`)
	change("identity_twice", ErrInvalid, "cut.datasets[1].partitions[1].identity", `AAAAAQ/1"`, `AAAAAQ/0"`)
	change("block_of_nothing", ErrInvalid, "cut.datasets[2].shuffle.block", `"block":64`, `"block":0`)
	change("in_order_without_virtual_ranks", ErrInvalid, "cut.datasets[2].shuffle.in_order", `"block":64`, `"block":64,"in_order":true`)
	change("of_no_virtual_rank", ErrInvalid, "cut.datasets[2].partitions[0].identity", `"block":64`, `"block":64,"virtual_ranks":8`)
	change("segment_ends_before_it_starts", ErrInvalid, first+".segments[0]", `"start":0,"end":1000`, `"start":1001,"end":1000`)
	change("segment_grows_before_the_last", ErrInvalid, first+".segments[0].sealed", `"end":1000,"sealed":true`, `"end":1000,"sealed":false`)
	change("done_but_not_complete", ErrInvalid, first+".done", `"number":1,"complete":true`, `"number":1,"complete":false`)
	change("shuffled_but_not_complete", ErrInvalid, "cut.datasets[2].partitions[0].passes", `"number":4,"complete":true`, `"number":4,"complete":false`)
	change("fewer_than_no_units", ErrInvalid, first+".passes[0].units", `"acked":1610`, `"acked":-1610`)
	change("empty_range", ErrInvalid, first+".passes[0].ranges.acked[0]", `[1,300,460]`, `[1,300,300]`)
	change("excluded_unsorted", ErrInvalid, first+".excluded[1]", `{"pass":1,"range":[1,460,500]`, `{"pass":0,"range":[0,989,990]`)
	change("excluded_outside", ErrInvalid, first+".excluded[0].range", `[0,990,1000]`, `[0,990,1001]`)
	change("no_id", ErrInvalid, "cut.id", `"id":"9f3c00000000abcd"`, `"id":"0000000000000000"`)
	change("no_ranks_in_the_world", ErrInvalid, "cut.world_size", `"world_size":3,"step":130,"exact"`, `"world_size":0,"step":130,"exact"`)
	change("order_below_none", ErrInvalid, "cut.order", `"order":12`, `"order":-12`)
	whole = drops
	change("dropped_unsorted", ErrInvalid, first+".dropped[1]", `{"pass":0,"range":[0,900,910],"units":10,"step":60},{"pass":1,"range":[1,230,250],"units":20,"step":130}`,
		`{"pass":1,"range":[1,230,250],"units":20,"step":130},{"pass":0,"range":[0,900,910],"units":10,"step":60}`)
	change("dropped_outside", ErrInvalid, first+".dropped[0].range", `[0,900,910]`, `[0,900,1001]`)
	change("dropped_and_not_settled", ErrInvalid, first+".dropped[2].range", `"range":[1,1500,1540]`, `"range":[1,1500,1541]`)
	change("dropped_more_than_there_is", ErrInvalid, first+".dropped[1].units", `"units":20`, `"units":21`)
	change("dropped_before_the_first_step", ErrInvalid, first+".dropped[0].step", `"step":60`, `"step":-1`)
	whole = encoded(t, good()["needs_another"])
	change("newer_needs_another", ErrNewer, "version", `"version":1,"job"`, `"version":2,"job"`)
	whole = encoded(t, good()["shared"])
	change("dropped_of_a_shared_model", ErrInvalid, first+".dropped", `[[0,9007199254740995,9007199254740996]]}}]`,
		`[[0,9007199254740995,9007199254740996]]}}],"dropped":[{"pass":0,"range":[0,17,18],"units":1,"step":1}]`)
	return out
}

func encoded(t *testing.T, m *Manifest) []byte {
	t.Helper()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func kindOf(err error) string {
	for name, kind := range map[string]error{"damaged": ErrDamaged, "newer": ErrNewer, "invalid": ErrInvalid} {
		if errors.Is(err, kind) {
			return name
		}
	}
	return ""
}

func summary(file string, m *Manifest) vector {
	v := vector{File: file, OK: true, Step: m.Step, Epoch: m.Cut.Epoch, Cut: m.Cut.ID.String(), Rank: m.Rank, Exact: m.Cut.Exact, Order: m.Cut.Order, Needs: m.Needs, Units: map[string]cut.Units{}, Records: map[string]cut.Tally{}}
	for _, f := range m.Files {
		v.Bytes += f.Size
	}
	for i := range m.Cut.Datasets {
		v.Units[m.Cut.Datasets[i].Name] = m.Cut.Datasets[i].Units()
		v.Records[m.Cut.Datasets[i].Name] = m.Cut.Datasets[i].Records()
	}
	if len(v.Units) == 0 {
		v.Units, v.Records = nil, nil
	}
	return v
}

func TestTheVectorsSayWhatEveryReaderMustMakeOfAManifest(t *testing.T) {
	write := func(name string, b []byte) {
		if *rewrite {
			if err := errors.Join(os.MkdirAll(vectors, 0o755), os.WriteFile(filepath.Join(vectors, name), b, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		was, err := os.ReadFile(filepath.Join(vectors, name))
		if err != nil || !bytes.Equal(was, b) {
			t.Errorf("%s/%s is not as the code writes it (%v). If you have changed the format on purpose, run go test ./flashckpt/manifest -rewrite", vectors, name, err)
		}
	}
	var index []vector
	goods := good()
	for _, name := range slices.Sorted(maps.Keys(goods)) {
		b, file := encoded(t, goods[name]), "good_"+name+".json"
		write(file, b)
		m, err := Parse(b)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if !reflect.DeepEqual(m, goods[name]) {
			t.Errorf("%s was read as\n%+v\nwant\n%+v", file, m, goods[name])
		}
		index = append(index, summary(file, m))
	}
	bads := bad(t)
	for _, name := range slices.Sorted(maps.Keys(bads)) {
		c, file := bads[name], "bad_"+name+".json"
		write(file, c.text)
		_, err := Parse(c.text)
		if !errors.Is(err, c.kind) {
			t.Errorf("%s got %v, want an error of the kind %v", file, err, c.kind)
			continue
		}
		field := ""
		if e, ok := errors.AsType[*cut.Error](err); ok {
			field = e.Field
		}
		if field != c.field {
			t.Errorf("%s got %v, which names the field %q, want %q", file, err, field, c.field)
		}
		v := vector{File: file, Kind: kindOf(err), Field: field}
		if c := read(OS{}, filepath.Join(vectors, file)); errors.Is(c.Err, ErrNewer) {
			if v.Needs, err = c.needed(); err != nil {
				t.Errorf("%s: what it needs is not known: %v", file, err)
			}
		}
		index = append(index, v)
	}
	text, err := json.MarshalIndent(index, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	write("index.json", append(text, '\n'))
	write("crc64nvme.json", sums(t))
}

// sums returns the checksums that every implementation must compute. The first one is the check value
// of the CRC catalogue.
func sums(t *testing.T) []byte {
	type sum struct {
		About  string `json:"about"`
		Base64 []byte `json:"base64"`
		CRC    CRC64  `json:"crc64nvme"`
	}
	long := make([]byte, 4099)
	for i := range long {
		long[i] = byte(i * i >> 3)
	}
	var out []sum
	for _, c := range []struct {
		about string
		b     []byte
	}{
		{"123456789", []byte("123456789")}, {"nothing", []byte{}}, {"one zero byte", []byte{0}},
		{"4096 zero bytes", make([]byte, 4096)}, {"all bytes", long[:256]}, {"byte i is i*i>>3", long},
	} {
		out = append(out, sum{c.about, c.b, CRC64(crc64nvme.Checksum(c.b))})
	}
	if out[0].CRC.String() != "ae8b14860a799888" {
		t.Errorf("CRC-64/NVME of 123456789 is %v", out[0].CRC)
	}
	text, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// Earlier versions wrote null for a cut without datasets.
func TestACutWithoutAListOfDatasetsIsRead(t *testing.T) {
	b := bytes.Replace(encoded(t, good()["nothing"]), []byte(`"datasets":[]`), []byte(`"datasets":null`), 1)
	if m, err := Parse(resealed(b)); err != nil || len(m.Cut.Datasets) != 0 {
		t.Errorf("the manifest was read as %+v (%v)", m, err)
	}
}
