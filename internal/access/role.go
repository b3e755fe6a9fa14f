package access

import (
	"fmt"
	"strings"
)

// Roles is a set of roles.
type Roles uint8

// The roles. Owner, who has all of them, is the user that started the master.
const (
	Viewer   Roles = 1 << iota // sees datasets, progress and metrics
	Agent                      // reads records and reports what trainers did; sees what a viewer sees
	Operator                   // changes datasets and goes back to checkpoints; sees what a viewer sees
	Pusher                     // pushes records into datasets of the source landing

	Owner = Viewer | Agent | Operator | Pusher
)

var roleNames = []struct {
	role Roles
	name string
}{{Viewer, "viewer"}, {Agent, "agent"}, {Operator, "operator"}, {Pusher, "pusher"}}

// parseRole reads the name of one role.
func parseRole(name string) (Roles, error) {
	var all []string
	for _, r := range roleNames {
		if r.name == name {
			return r.role, nil
		}
		all = append(all, r.name)
	}
	return 0, fmt.Errorf("%q is not a role: one of %s", name, strings.Join(all, ", "))
}

// String lists the set, as in "agent or operator".
func (r Roles) String() string {
	var names []string
	for _, n := range roleNames {
		if r&n.role != 0 {
			names = append(names, n.name)
		}
	}
	if names == nil {
		return "no role"
	}
	return strings.Join(names, " or ")
}

// Caller is the other end of a connection. It is the connection's gRPC AuthInfo.
type Caller struct {
	Name  string // for people: "certificate node-1", "the token of /var/lib/headrace/token"
	Roles Roles
}

// AuthType names the way in which a caller proves its roles, for gRPC.
func (Caller) AuthType() string { return "headrace" }
