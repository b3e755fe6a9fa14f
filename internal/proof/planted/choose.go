package planted

var chosen string

// Choose makes one bug live, in the whole process; "" makes none live. Choose one
// while no simulation runs.
func Choose(name string) { chosen = name }

// Is says whether the bug is live. Only patched files ask.
func Is(name string) bool { return chosen == name }
