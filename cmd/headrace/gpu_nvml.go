//go:build nvml

package main

import (
	"fmt"
	"log/slog"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const hasNVML = true

// listGPUs names this node's GPUs: "0: NVIDIA H200, 139 GiB". A node without
// them is as good as any other.
func listGPUs(log *slog.Logger) []string {
	if r := nvml.Init(); r != nvml.SUCCESS {
		log.Info("no GPUs are listed: the NVIDIA driver does not answer", "reason", nvml.ErrorString(r))
		return nil
	}
	defer nvml.Shutdown()
	n, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		log.Info("no GPUs are listed", "reason", nvml.ErrorString(r))
		return nil
	}
	var all []string
	for i := range n {
		d, r := nvml.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			all = append(all, fmt.Sprintf("%d: %s", i, nvml.ErrorString(r)))
			continue
		}
		text := fmt.Sprintf("%d:", i)
		if name, r := d.GetName(); r == nvml.SUCCESS {
			text += " " + name
		}
		if mem, r := d.GetMemoryInfo(); r == nvml.SUCCESS {
			text += fmt.Sprintf(", %d GiB", mem.Total>>30)
		}
		all = append(all, text)
	}
	return all
}
