package serve_test

import (
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources/files"
	"github.com/headrace/headrace/sources/kafka"
)

func init() { dataset.Register(files.Kind, kafka.Kind) }
