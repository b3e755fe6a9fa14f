package kafka

import (
	"strings"
	"testing"
)

func TestOffsetsOfAPartitionThatIsNotThereAreRefused(t *testing.T) {
	topics := []topicMeta{{name: "clicks", partitions: []partitionMeta{{number: 0}, {number: 1}}}, {name: "views", partitions: []partitionMeta{{number: 0}}}}
	for key, there := range map[string]bool{"0": true, "1": true, "2": false, "clicks/1": true, "views/1": false} {
		for _, field := range []string{"start_offsets", "end_offsets"} {
			o := &Options{Dataset: "d"}
			if offsets := map[string]int64{key: 0}; field == "start_offsets" {
				o.Start.Places = offsets
			} else {
				o.End.Places = offsets
			}
			err := o.offsetsThere(topics)
			if there != (err == nil) || !there && (!strings.Contains(err.Error(), "kafka."+field) || !strings.Contains(err.Error(), "partition "+key)) {
				t.Errorf("%s {%s: 0}: %v", field, key, err)
			}
		}
	}
}
