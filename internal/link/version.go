package link

import (
	"runtime"
	"runtime/debug"
)

// Protocol is the number of the agent-master protocol (session.proto) and of
// the trainer socket (docs/PROTOCOL.md) that this binary speaks.
const Protocol = 1

// Build says what this binary is.
type Build struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Time     string `json:"time"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	NVML     bool   `json:"nvml"`
}

// BuildOf reads the build information that the Go tool left in the binary.
func BuildOf(version string, nvml bool) Build {
	b := Build{Version: version, Protocol: Protocol, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, NVML: nvml}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
