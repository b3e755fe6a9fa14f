package chaos

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
)

// A stepped batch comes again only if the master has given up its trainer: for too long, no agent
// has reported the process or its step file. The master's log says when that happened.
var givenUpLine = regexp.MustCompile(`^time=(\S+) .*msg="a trainer is given up: [^"]*"(?: agent=agent-(\d+))? rank=(\d+)`)

// readGivenUp adds to each life the times at which a process of its rank was given up.
func (c *crew) readGivenUp(lives []*life) error {
	file, err := os.Open(filepath.Join(c.dir, "master.log"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	ahead := time.Now().UnixNano() - child.Monotonic() // how far the wall clock is ahead of the monotonic one; no process sets it here
	in := bufio.NewScanner(file)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		m := givenUpLine.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		when, err := time.Parse(time.RFC3339Nano, m[1])
		rank, err2 := strconv.Atoi(m[3])
		agent := -1 // any agent: a master that was just started does not know the agent
		if m[2] != "" {
			agent, _ = strconv.Atoi(m[2])
		}
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		c.lost++
		at := when.UnixNano() - ahead
		for _, l := range lives {
			if l.rank == rank && l.began < at && (agent < 0 || agent == l.agent) {
				l.givenUp = append(l.givenUp, at)
			}
		}
	}
	return in.Err()
}
