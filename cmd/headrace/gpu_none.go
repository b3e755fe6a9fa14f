//go:build !nvml

package main

import "log/slog"

const hasNVML = false

func listGPUs(*slog.Logger) []string { return nil }
