package chunk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// KeyOf finds the key of a JSON record by a JSON Pointer. The key of a string is its bytes. The
// key of any other value is its JSON. A record without the value has no key.
func KeyOf(pointer string, record []byte) ([]byte, error) {
	at := json.RawMessage(record)
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		at = bytes.TrimLeft(at, " \t\r\n")
		switch {
		case len(at) > 0 && at[0] == '[':
			var all []json.RawMessage
			if err := json.Unmarshal(at, &all); err != nil {
				return nil, fmt.Errorf("its key %s: %w", pointer, err)
			}
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(all) {
				return nil, nil
			}
			at = all[i]
		default:
			var all map[string]json.RawMessage
			if err := json.Unmarshal(at, &all); err != nil {
				return nil, fmt.Errorf("its key %s: %w", pointer, err)
			}
			if at = all[token]; at == nil {
				return nil, nil
			}
		}
	}
	at = bytes.TrimSpace(at)
	if bytes.Equal(at, []byte("null")) {
		return nil, nil
	}
	if at[0] == '"' {
		var s string
		err := json.Unmarshal(at, &s)
		return []byte(s), err
	}
	return at, nil
}
