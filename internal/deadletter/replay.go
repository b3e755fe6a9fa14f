package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/headrace/headrace/internal/advice"
)

// Replayed is what was pushed.
type Replayed struct {
	Dataset string `json:"dataset"`
	Into    string `json:"into"`
	Records int    `json:"records"` // pushed now
	Already int    `json:"already"` // pushed by an earlier run
}

func (r *Replayed) Write(w io.Writer) {
	fmt.Fprintf(w, "dataset %s: %d records pushed into %s", r.Dataset, r.Records, r.Into)
	if r.Already > 0 {
		fmt.Fprintf(w, ", %d were pushed before", r.Already)
	}
	fmt.Fprintln(w)
}

// Replayable refuses letters if one of them cannot be pushed as the source had it. Then none
// is pushed.
func Replayable(all []Letter) error {
	for i := range all {
		switch l := &all[i]; {
		case !l.Bytes():
			return advice.Usage.Errorf("read the row from the file, or replay others by their ids",
				"nothing is kept of %s, row %d of %s", l.ID, l.Offset, l.Name)
		case !l.Whole():
			return advice.Usage.Errorf("take it from the source", "%s has %d bytes, and only the first %d are kept", l.ID, l.Size, len(l.Value))
		}
	}
	return nil
}

// Replay pushes each letter in a transaction of its own, which is named by the letter's id. So
// a second run adds nothing. push returns whether the transaction was visible before.
func (r *Replayed) Replay(all []Letter, push func(transaction string, l *Letter) (already bool, err error)) error {
	for i := range all {
		already, err := push(all[i].transaction(), &all[i])
		switch {
		case err != nil:
			return err
		case already:
			r.Already++
		default:
			r.Records++
		}
	}
	return nil
}

// transaction names l. An id may be longer than a transaction's. If an older letter of another
// record has the same id, the name has the record too; otherwise it would count as pushed.
func (l *Letter) transaction() string {
	text := []byte(l.ID)
	if l.again {
		text = append(fmt.Appendf(text, "\x00%s\x00", l.Name), l.Value...)
	}
	sum := sha256.Sum256(text)
	return "deadletter-" + hex.EncodeToString(sum[:16])
}
