// Package gone finds the input that going back to a cut needs and the source has deleted.
// It works on values that the core hands it, and changes nothing. It imports shardsvc/line
// (ranges, geometry, shuffle) and the standard library.
//
// Example: the cut has [0, 500), and the source has deleted everything below 800. After
// going back, [500, 800) would be pending, and nobody can read it: it is gone.
package gone
