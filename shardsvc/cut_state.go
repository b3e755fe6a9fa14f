package shardsvc

// CutState is where in its life a kept cut is. The numbers are stored.
type CutState uint8

const (
	CutFrozen CutState = iota
	CutBound
	CutCarried
	CutVoided

	// cutUnbound is a dropped cut whose body is still needed: it says which records
	// are in the model of a private rank. Nobody sees it.
	cutUnbound

	// CutMemory: its checkpoint lies in the memory of the trainers' nodes. The job can go
	// back to it. It is never committed to a broker, and nothing is retained or deleted
	// because of it: that memory may be lost at any moment. Once its checkpoint is on
	// storage it is bound.
	CutMemory

	// cutReturned is a CutMemory that the model went back to, while nothing newer is bound.
	// So the state that the model began with is on no storage. The API shows it as
	// CutMemory.
	cutReturned
	cutStates
)

func (s CutState) String() string {
	return [...]string{"frozen", "bound", "carried", "voided", "?", "memory", "memory", "?"}[min(s, cutStates)]
}

// kept says whether the job may go back to the cut, now or once it is bound.
func (s CutState) kept() bool { return s < CutVoided || s.inMemory() }

func (s CutState) inMemory() bool { return s == CutMemory || s == cutReturned }
