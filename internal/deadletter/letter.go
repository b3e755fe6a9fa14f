package deadletter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Letter is one bad record. ID names it: a record that is written twice has the same ID.
type Letter struct {
	ID        string `json:"id"` // DATASET/PARTITION/PASS/SEGMENT/OFFSET
	Dataset   string `json:"dataset"`
	Partition string `json:"partition"` // its identity
	Label     string `json:"label"`     // what people call it
	Pass      uint32 `json:"pass"`      // from 0
	Segment   int64  `json:"segment"`
	Name      string `json:"name"` // of the segment: a file's path, a topic
	Offset    int64  `json:"offset"`
	End       int64  `json:"end"`    // where the next record begins
	Column    string `json:"column"` // empty: the record as a whole
	Kind      string `json:"kind"`
	Reason    string `json:"reason"`
	Time      string `json:"time"` // when it was excluded, RFC 3339
	Size      int64  `json:"size"` // bytes of the whole value; -1: there is none
	Value     []byte `json:"value"`
	Form      string `json:"form,omitempty"` // empty: Value is the record as it was read; FormJSON
	Key       []byte `json:"key,omitempty"`

	again bool // an older letter of another record has the same id (Reading)
}

// FormJSON is the Form of a row of a file of columns, such as Parquet. The row has no bytes
// of its own, so Value is a JSON object of its fields.
const FormJSON = "json"

// Fill sets ID and Time from the rest.
func (l *Letter) Fill(ms int64) {
	l.ID = fmt.Sprintf("%s/%s/%d/%d/%d", l.Dataset, l.Partition, l.Pass, l.Segment, l.Offset)
	l.Time = time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// Whole says whether Value is all of the record.
func (l *Letter) Whole() bool { return int64(len(l.Value)) == l.Size }

// Bytes says whether there is a value. A row of a file of columns has none in two cases: it is too
// large to be read, or its letter was written before letters had rows as JSON.
func (l *Letter) Bytes() bool { return l.Size >= 0 }

// sameRecord says whether two letters with one id are of the same record.
func (l *Letter) sameRecord(o *Letter) bool {
	same := l.Name == o.Name || l.Name == "" || o.Name == "" // the name of a file may be forgotten meanwhile
	return same && l.Size == o.Size && bytes.Equal(l.Value, o.Value) && bytes.Equal(l.Key, o.Key)
}

// Encode is l on one line, with its line end.
func (l *Letter) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(l)
	return b.Bytes(), err
}

// Decode reads one line.
func Decode(line []byte) (l Letter, err error) {
	if err = json.Unmarshal(line, &l); err == nil && l.ID == "" {
		err = fmt.Errorf("it has no id")
	}
	return l, err
}
