//go:build !planted

package planted

// On: this program has bugs planted in it.
const On = false

// Is is never asked.
func Is(string) bool { return false }
