package shardsvc

// CheckInvariants checks everything that must hold after each Step. For each (partition,
// pass):
//
//	committed <= bound <= acked <= leased <= planned <= head
//
// Every planned unit is in exactly one of pending, leased and settled, and every count
// agrees with what it counts. It looks at everything, so only tests and
// the simulation call it.
func (c *Core) CheckInvariants() error {
	if err := c.checkLedger(); err != nil {
		return err
	}
	return c.checkPause()
}
