package access

import (
	"strings"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// seers may see what is going on.
const seers = Viewer | Agent | Operator

// calls says which roles may make a gRPC call: one of them is enough.
var calls = map[string]Roles{
	headracev1.Shards_Session_FullMethodName: Agent,

	headracev1.Datasets_Describe_FullMethodName: seers,
	headracev1.Datasets_List_FullMethodName:     seers,
	headracev1.Datasets_State_FullMethodName:    seers,
	headracev1.Datasets_Excluded_FullMethodName: seers,
	headracev1.Datasets_Job_FullMethodName:      seers,
	headracev1.Datasets_Apply_FullMethodName:    Operator,
	headracev1.Datasets_Pause_FullMethodName:    Operator,
	headracev1.Datasets_Resume_FullMethodName:   Operator,
	headracev1.Datasets_Delete_FullMethodName:   Operator,
	headracev1.Datasets_Reclaim_FullMethodName:  Operator,

	headracev1.Datasets_ReadDeadLetters_FullMethodName: Operator, // they hold records

	headracev1.Landing_Layout_FullMethodName: Pusher,
	headracev1.Landing_Stage_FullMethodName:  Pusher,
	headracev1.Landing_Commit_FullMethodName: Pusher,
	headracev1.Landing_Land_FullMethodName:   Pusher,
	headracev1.Landing_Landed_FullMethodName: Pusher,
	headracev1.Landing_End_FullMethodName:    Pusher,
	headracev1.Landing_Read_FullMethodName:   Agent | Operator, // as dead letters
	headracev1.Landing_Chunks_FullMethodName: Agent | Operator,

	headracev1.Peers_Meet_FullMethodName: Agent,
	headracev1.Peers_List_FullMethodName: seers,

	// Agents make these calls to each other. A checkpoint in memory is the model, so nobody else
	// may make them.
	headracev1.Replicas_Keep_FullMethodName:   Agent,
	headracev1.Replicas_Look_FullMethodName:   Agent,
	headracev1.Replicas_Check_FullMethodName:  Agent,
	headracev1.Replicas_Fetch_FullMethodName:  Agent,
	headracev1.Replicas_Forget_FullMethodName: Agent,

	headracev1.Checkpoints_Cuts_FullMethodName:   seers,
	headracev1.Checkpoints_Show_FullMethodName:   seers,
	headracev1.Checkpoints_Bind_FullMethodName:   Operator,
	headracev1.Checkpoints_Drop_FullMethodName:   Operator,
	headracev1.Checkpoints_Rewind_FullMethodName: Operator,
}

// pages says the same for HTTP. A path that ends with / stands for all pages below it. 0 is open
// to everybody.
var pages = map[string]Roles{
	"/healthz":      0, // for probes, which have no token; it says "ok" or why not
	"/readyz":       seers,
	"/metrics":      seers,
	"/":             seers,
	"/v1/datasets/": Pusher,
	"/debug/pprof/": Operator, // memory and command line
}

// neededForCall says which roles may make a call, and whether the table has it. A call
// that is not in the table is refused to everybody.
func neededForCall(method string) (Roles, bool) {
	r, ok := calls[method]
	return r, ok
}

// NeededForPage says which roles may read the page at path, and whether the table has it.
func NeededForPage(path string) (Roles, bool) {
	if r, ok := pages[path]; ok {
		return r, true
	}
	for p, r := range pages {
		if p != "/" && strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) {
			return r, true
		}
	}
	return 0, false
}
