//go:build planted

package planted

// On: this program has bugs planted in it.
const On = true

var chosen string

// Choose makes one bug live, for the whole process; "" none.
func Choose(name string) { chosen = name }

// Is says whether the bug is live.
func Is(name string) bool { return chosen == name }
