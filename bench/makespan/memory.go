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

// playForMemory plays one scenario and returns the resident memory in KiB at its
// end, after the collector has returned what is free: what is left is held.
func playForMemory(n, largest int64) (kib int) {
	playLeases(draw(n, rows, four, 1), largest, func() {
		debug.FreeOSMemory()
		kib = resident()
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

// growth compares the memory of processes that play 10^7 and 10^9 records.
func growth(largest int64) (kib map[string]int, ratio float64) {
	self, err := os.Executable()
	if err != nil {
		fail(err)
	}
	kib = map[string]int{}
	for _, n := range []string{"10000000", "1000000000"} {
		out, err := exec.Command(self, "-memory", n, "-largest", strconv.FormatInt(largest, 10)).Output()
		if err == nil {
			kib[n], err = strconv.Atoi(strings.TrimSpace(string(out)))
		}
		if err != nil {
			fail(fmt.Errorf("measuring memory with %s records: %w", n, err))
		}
		fmt.Fprintf(os.Stderr, "memory: %s records, leases of at most %d, %d KiB resident\n", n, largest, kib[n])
	}
	return kib, float64(kib["1000000000"]) / float64(kib["10000000"])
}
