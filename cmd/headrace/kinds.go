package main

import (
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources/files"
	"github.com/headrace/headrace/sources/kafka"
	"github.com/headrace/headrace/sources/landing"
	"github.com/headrace/headrace/sources/pulsar"
	"github.com/headrace/headrace/sources/rocketmq"
)

// The sources that this program reads, one line each. Nothing else of the product
// names an adapter (docs/WRITE-A-SOURCE.md).
func init() {
	dataset.Register(
		files.Kind,
		kafka.Kind,
		landing.Kind,
		pulsar.Kind,
		rocketmq.Kind,
	)
}
