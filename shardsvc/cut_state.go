package shardsvc

// CutState is where in its life a kept cut is.
type CutState uint8

const (
	CutFrozen CutState = iota
	CutBound
	CutCarried
	CutVoided
	cutStates
)

func (s CutState) String() string {
	return [...]string{"frozen", "bound", "carried", "voided", "?"}[min(s, cutStates)]
}
