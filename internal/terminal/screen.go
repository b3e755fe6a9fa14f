package terminal

// Escape sequences of a program that repaints the terminal.
const (
	EnterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, no cursor
	LeaveScreen = "\x1b[?25h\x1b[?1049l"
	Home        = "\x1b[H"
	ClearLine   = "\x1b[K"
	ClearBelow  = "\x1b[J"
)
