package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// playForMemory plays one scenario and returns the peak resident memory in KiB.
func playForMemory(n int64) int {
	playOurs(draw(n, rows, four, 1))
	file, err := os.Open("/proc/self/status")
	if err != nil {
		fail(err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				fail(err)
			}
			return kib
		}
	}
	fail(fmt.Errorf("/proc/self/status has no VmHWM"))
	return 0
}

// growth compares the peak memory of processes that play 10^7 and 10^9 records;
// a third in between shows where it stops to grow.
func growth() (kib map[string]int, ratio float64) {
	self, err := os.Executable()
	if err != nil {
		fail(err)
	}
	kib = map[string]int{}
	for _, n := range []string{"10000000", "500000000", "1000000000"} {
		out, err := exec.Command(self, "-memory", n).Output()
		if err == nil {
			kib[n], err = strconv.Atoi(strings.TrimSpace(string(out)))
		}
		if err != nil {
			fail(fmt.Errorf("measuring memory with %s records: %w", n, err))
		}
		fmt.Fprintf(os.Stderr, "memory: %s records, %d KiB resident at most\n", n, kib[n])
	}
	return kib, float64(kib["1000000000"]) / float64(kib["10000000"])
}
