package dataset

// Nearest returns the known name that was probably meant, or "".
func Nearest(name string, known []string) string {
	best, far := "", max(1, min(3, len(name)/3))+1
	if len(name) > 64 {
		return ""
	}
	for _, k := range known {
		if len(k) > 64 {
			continue
		}
		if d := distance(name, k); d < far {
			best, far = k, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete, change, or swap with their
// neighbour (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
