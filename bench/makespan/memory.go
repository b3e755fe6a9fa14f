package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
)

// playForMemory plays one scenario and returns the resident memory at its end, in KiB. The collector has
// returned free memory by then, so the rest is in use.
func playForMemory(n, largest int64) (kib int) {
	playLeases(draw(n, rows, four, 1), largest, func() {
		for range 5 { // one collection may leave garbage that only the next one frees
			debug.FreeOSMemory()
			if now := resident(); kib == 0 || now < kib {
				kib = now
			}
		}
	})
	return kib
}

func resident() int {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		fail(err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				fail(err)
			}
			return kib
		}
	}
	fail(errors.New("/proc/self/status has no RssAnon"))
	return 0
}

// growth compares the memory of processes that play 10^7 and 10^9 records. Each is the median of three:
// the runtime's own memory varies by some per cent.
func growth(largest int64) (kib map[string]int, ratio float64) {
	kib = map[string]int{}
	for _, n := range []string{"10000000", "1000000000"} {
		var runs []float64
		for range 3 {
			runs = append(runs, float64(play(n, largest)))
		}
		kib[n] = int(median(runs))
		fmt.Fprintf(os.Stderr, "memory: %s records, leases of at most %d, %v KiB resident\n", n, largest, runs)
	}
	return kib, float64(kib["1000000000"]) / float64(kib["10000000"])
}

// play starts a process that plays n records, and returns its resident memory in KiB.
func play(n string, largest int64) int {
	self, err := os.Executable()
	if err != nil {
		fail(err)
	}
	out, err := exec.Command(self, "-memory", n, "-largest", strconv.FormatInt(largest, 10)).Output()
	if err != nil {
		fail(fmt.Errorf("measuring memory with %s records: %w", n, err))
	}
	kib, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		fail(err)
	}
	return kib
}
