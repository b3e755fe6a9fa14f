package chaos

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// SIGKILL cut a write off after 4,096 bytes, at the end of a page. A partial last entry is ignored if
// the process was killed. In the journal of any other process it is an error.
func TestAJournalMayEndWithAPartOfAnEntryOnlyIfItsProcessWasKilled(t *testing.T) {
	entry := append([]byte("CHJ1"), make([]byte, entrySize-4+2*8)...)
	binary.LittleEndian.PutUint16(entry[4:], kindYielded)
	binary.LittleEndian.PutUint32(entry[8:], 2)
	path := filepath.Join(t.TempDir(), "rank-0-1.journal")
	for cut := range entry {
		binary.LittleEndian.PutUint64(entry[16:], 2)
		text := append([]byte(nil), entry...)
		binary.LittleEndian.PutUint64(text[16:], 1)
		if err := os.WriteFile(path, append(text, entry[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		killed := life{status: "signal: killed"}
		if err := killed.read(path); err != nil || len(killed.batches) != 1 || killed.batches[0].number != 1 {
			t.Errorf("a killed process left a whole entry and %d bytes of the next: error %v, %d batches; want no error and the batch of the whole entry", cut, err, len(killed.batches))
		}
		ended := life{status: "exit status 0"}
		if err := ended.read(path); (err == nil) != (cut == 0) {
			t.Errorf("a process that ended by itself left %d bytes of an entry: error %v, want one", cut, err)
		}
	}
	if err := os.WriteFile(path, []byte("CHJ2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&life{status: "signal: killed"}).read(path); err == nil {
		t.Error("a file that is not a journal was read as one")
	}
}
