package serve

// Metered reports whether the meter has seen units of a dataset.
func (s *Server) Metered(id uint32) bool {
	t := s.metrics.track(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.listed) > 0 && t.listed[len(t.listed)-1].units > 0
}

// Deletions returns what is known to be deleted at the sources.
func (s *Server) Deletions() []Deletion { return s.deleted() }
