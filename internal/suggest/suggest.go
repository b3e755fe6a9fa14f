// Package suggest finds the word that a user probably meant. It serves error messages
// only: nothing acts on a guess.
package suggest

import (
	"slices"
	"strings"
)

// Closest returns the candidate nearest to word, or "" when none is near: at
// most a third of its letters away, and never more than three edits. Words of
// more than 64 bytes are not guessed at: they may come from anybody.
func Closest(word string, candidates []string) string {
	const longest = 64
	if len(word) > longest {
		return ""
	}
	best, bestDist := "", min(3, max(1, len(word)/3))+1
	for _, c := range candidates {
		if len(c) > longest {
			continue
		}
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// Hint makes the sentence that follows "unknown x": a guess, else what exists.
// what is the plural of the thing ("datasets").
func Hint(word string, candidates []string, what string) string {
	if c := Closest(word, candidates); c != "" {
		return "did you mean " + c + "?"
	}
	if len(candidates) == 0 {
		return "there are no " + what
	}
	names := slices.Clone(candidates)
	slices.Sort(names)
	rest := ""
	if len(names) > 8 {
		names, rest = names[:8], ", ..."
	}
	return what + ": " + strings.Join(names, ", ") + rest
}

// distance counts insertions, deletions, replacements and swaps of neighbours
// (optimal string alignment).
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
