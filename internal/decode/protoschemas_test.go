package decode

import (
	"fmt"
	"strings"
)

const everyKind = `
	optional int32 oi = 17; optional string os = 18;
	Sub sub = 19; repeated Sub subs = 20;
	repeated int32 ri = 21; repeated float rf = 22; repeated string rs = 23; repeated sint64 rz = 24; repeated E re = 25; repeated sfixed64 rq = 4000;
	map<string, int32> ms = 26; map<int32, Sub> mi = 27; map<bool, string> mb = 28; map<string, google.protobuf.Timestamp> mt = 39;
	oneof one { int32 a = 29; string b = 30; Sub c = 31; }
	google.protobuf.Timestamp ts = 32; repeated google.protobuf.Timestamp tss = 33;
	google.protobuf.Int64Value wi = 34; repeated google.protobuf.StringValue ws = 35;
	M me = 2000;
`

// The same messages in proto2, proto3 and editions. In proto2 and editions some fields are groups.
var everySyntax = map[string]string{
	"proto3": `syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message M { int32 i32 = 1; sint32 s32 = 2; uint32 u32 = 3; int64 i64 = 4; sint64 s64 = 5; uint64 u64 = 6; fixed32 f32 = 7; fixed64 f64 = 8;
	sfixed32 sf32 = 9; sfixed64 sf64 = 10; float fl = 11; double db = 12; bool bo = 13; string st = 14; bytes by = 15; E en = 16;` + everyKind + `}
enum E { option allow_alias = true; ZERO = 0; ONE = 1; UNO = 1; MINUS = -5; FAR = 100000; }
message Sub { int32 x = 1; optional string y = 2; repeated int32 z = 3; Sub deeper = 4; repeated Sub more = 5;
	oneof o { int32 p = 6; Sub q = 7; } map<string, sint32> m = 8; google.protobuf.Timestamp at = 9; E e = 10; }`,

	"proto2": `syntax = "proto2"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message M { optional int32 i32 = 1 [default = 7]; optional sint32 s32 = 2; optional uint32 u32 = 3; required int64 i64 = 4; optional sint64 s64 = 5; optional uint64 u64 = 6; optional fixed32 f32 = 7; optional fixed64 f64 = 8;
	optional sfixed32 sf32 = 9; optional sfixed64 sf64 = 10; optional float fl = 11; optional double db = 12; optional bool bo = 13; optional bytes st = 14; optional bytes by = 15; optional E en = 16; map<string, E> me2 = 50;` +
		strings.NewReplacer("map<string", "map<string", "string", "bytes", "\n\tSub sub", "\n\toptional Sub sub", "\n\tgoogle", "\n\toptional google", "\n\tM me", "\n\toptional M me", "rz = 24", "rz = 24 [packed = true]").Replace(everyKind) + `}
enum E { option allow_alias = true; ZERO = 0; MINUS = -5; ONE = 1; UNO = 1; FAR = 100000; }
message Sub { optional int32 x = 1; optional bytes y = 2; repeated int32 z = 3; optional Sub deeper = 4; repeated Sub more = 5;
	oneof o { int32 p = 6; Sub q = 7; } map<string, sint32> m = 8; optional google.protobuf.Timestamp at = 9; optional E e = 10; }`,

	"edition 2023": `edition = "2023"; option features.message_encoding = DELIMITED; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message M { int32 i32 = 1; sint32 s32 = 2; uint32 u32 = 3; int64 i64 = 4; sint64 s64 = 5; uint64 u64 = 6 [features.field_presence = IMPLICIT]; fixed32 f32 = 7; fixed64 f64 = 8;
	sfixed32 sf32 = 9; sfixed64 sf64 = 10; float fl = 11 [features.field_presence = IMPLICIT]; double db = 12; bool bo = 13; string st = 14 [features.field_presence = IMPLICIT]; bytes by = 15; E en = 16;` +
		strings.NewReplacer("optional ", "").Replace(everyKind) + `}
enum E { option allow_alias = true; ZERO = 0; ONE = 1; UNO = 1; MINUS = -5; FAR = 100000; }
message Sub { int32 x = 1; string y = 2; repeated int32 z = 3; Sub deeper = 4; repeated Sub more = 5;
	oneof o { int32 p = 6; Sub q = 7; } map<string, sint32> m = 8; google.protobuf.Timestamp at = 9; E e = 10; }`,
}

// everyPath are paths of M and the dtypes that hold their values.
var everyPath = [][2]string{
	{"i32", "int64"}, {"s32", "int32"}, {"u32", "int64"}, {"i64", "int64"}, {"s64", "int64"}, {"u64", "float64"}, {"f32", "float64"}, {"f64", "float32"},
	{"sf32", "int32"}, {"sf64", "int64"}, {"fl", "float32"}, {"fl", "float64"}, {"db", "float64"}, {"bo", "bool"}, {"st", "bytes"}, {"by", "bytes"}, {"en", "string"}, {"en", "int32"},
	{"oi", "int64"}, {"os", "bytes"}, {"/sub/x", "int64"}, {"/sub/y", "bytes"}, {"/sub/deeper/x", "int32"}, {"/sub/z/*", "int64"}, {"/sub/z/1", "int64"}, {"/sub/p", "int64"}, {"/sub/q/x", "int64"}, {"/sub/q/z/*", "int32"},
	{"/sub/m/k", "int64"}, {"/sub/at", "int64"}, {"/sub/e", "bytes"}, {"/sub/more/*/x", "int64"}, {"/sub/more/0/z/*", "int64"}, {"/sub/q/z/0", "int32"}, {"/sub/deeper/deeper/y", "bytes"},
	{"/subs/*/x", "int64"}, {"/subs/*/y", "bytes"}, {"/subs/*/z/*", "int64"}, {"/subs/*/z/1", "int64"}, {"/subs/*/deeper/x", "int32"}, {"/subs/*/deeper/z/*", "int32"}, {"/subs/*/more/*/x", "int64"}, {"/subs/*/more/*/more/*/y", "bytes"},
	{"/subs/*/p", "int64"}, {"/subs/*/q/x", "int64"}, {"/subs/*/q/z/*", "int64"}, {"/subs/*/q/more/*/p", "int64"}, {"/subs/*/m/k", "float64"}, {"/subs/*/at", "int64"}, {"/subs/*/at/seconds", "float64"}, {"/subs/*/e", "string"}, {"/subs/*/q/z/0", "int64"},
	{"/subs/0/x", "int64"}, {"/subs/1/z/*", "int64"}, {"/subs/1/y", "bytes"}, {"/subs/*/nothing", "int64"}, {"/subs/*/nothing/*", "int64"},
	{"/ri/*", "int64"}, {"/ri/2", "int64"}, {"/rf/*", "float32"}, {"/rf/*", "float64"}, {"/rs/*", "bytes"}, {"/rs/0", "bytes"}, {"/rz/*", "int64"}, {"/re/*", "string"}, {"/re/*", "int64"}, {"/rq/*", "int64"},
	{"/ms/k", "int64"}, {"/ms/", "int64"}, {"/mi/-1/x", "int64"}, {"/mi/0/y", "bytes"}, {"/mi/-1/z/*", "int64"}, {"/mi/-1/q/x", "int64"}, {"/mb/true", "bytes"}, {"/mb/false", "bytes"}, {"/mt/k", "int64"}, {"/mt/k/nanos", "int64"}, {"/me2/k", "string"},
	{"a", "int64"}, {"b", "bytes"}, {"/c/x", "int64"}, {"/c/z/*", "int64"}, {"/c/deeper/p", "int64"}, {"/c/z/0", "int64"}, {"/c/more/*/x", "int64"},
	{"ts", "int64"}, {"/ts/seconds", "float64"}, {"/tss/*", "int64"}, {"/tss/0", "int64"}, {"/tss/*/nanos", "int64"}, {"wi", "int64"}, {"/ws/*", "bytes"}, {"/ws/1", "bytes"},
	{"/me/i32", "int64"}, {"/me/me/st", "bytes"}, {"/me/ri/*", "int32"}, {"/me/subs/*/x", "int64"}, {"nothing", "int64"}, {"/i32/nothing", "int64"},
}

const elementDefault = "7"

func everyColumn() string {
	var b strings.Builder
	b.WriteString("columns:\n")
	for i, p := range everyPath {
		if strings.Contains(p[0], "*") {
			fmt.Fprintf(&b, "- {name: c%d, path: %q, dtype: %s, default: %q, missing: mask}\n", i, p[0], p[1], elementDefault)
		} else {
			fmt.Fprintf(&b, "- {name: c%d, path: %q, dtype: %s, missing: mask}\n", i, p[0], p[1])
		}
	}
	return b.String()
}
