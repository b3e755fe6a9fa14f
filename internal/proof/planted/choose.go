package planted

var chosen string

// Choose turns one bug on, in the whole process; "" turns all off. Do not call it while a simulation
// runs.
func Choose(name string) { chosen = name }

// Is reports whether the bug is on. Only patched files call it.
func Is(name string) bool { return chosen == name }
