// Package planted holds bugs that the simulation must find. With the build tag
// `planted` one of them is chosen by name when the program runs; without it On is
// the constant false, and nothing of any bug is in the program.
//
//	if planted.On && planted.Is(planted.FenceDropped) { ... }
package planted
