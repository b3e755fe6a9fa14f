package brokers

// Spares has memory of closed cursors. Its capacity is how many pieces it keeps.
type Spares chan []byte

// Keep stores memory for a later answer. If enough is stored already, it drops it.
func (s Spares) Keep(memory []byte) {
	if cap(memory) == 0 {
		return
	}
	select {
	case s <- memory[:0]:
	default:
	}
}

// Take returns stored memory, or nil.
func (s Spares) Take() []byte {
	select {
	case memory := <-s:
		return memory
	default:
		return nil
	}
}
