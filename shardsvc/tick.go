package shardsvc

// tick lets time pass. Sessions expire only here, because only here the shell has drained
// its inbox: a message that would have kept a session alive was read before.
func (c *Core) tick() {
	for c.timers.next() <= c.now {
		switch t := c.timers.pop(); t.kind {
		case timerSession:
			c.sessionDue(t.of.(*agent))
		case timerDetached:
			c.detachedDue(t.of.(*worker))
		case timerStall:
			c.stallDue(t.of.(*holder).process().(*worker), t.at)
		case timerSteal:
			c.scanDue(t.of.(*dataset), t.at)
		case timerRecovery:
			c.recoveryDue()
		case timerAsk:
			c.askTimeout()
		case timerResolve:
			c.resolveCut(t.cut, false, "its storage was not seen in time")
		case timerRestore:
			c.restoreDue()
		case timerPause:
			c.pauseTimeout()
		case timerRounds:
			c.roundsDue(t.at)
		case timerDoubt:
		}
	}
}
