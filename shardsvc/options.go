package shardsvc

import (
	"errors"
	"fmt"

	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

func (o *Options) validate() error {
	switch {
	case o.Passes < 1 || o.Passes > 1<<31:
		return fmt.Errorf("passes is %d, must be 1 to 2147483648", o.Passes)
	case o.Min < 1 || o.Max < o.Min:
		return fmt.Errorf("lease sizes: min %d, max %d; need 1 <= min <= max", o.Min, o.Max)
	case o.Initial < 1:
		return fmt.Errorf("lease initial is %d, must be at least 1", o.Initial)
	case o.Target <= 0:
		return fmt.Errorf("lease target is %d ns, must be positive", o.Target)
	case o.Stall < 0:
		return fmt.Errorf("lease stall is %d ns, must not be negative", o.Stall)
	case o.Shuffle && (o.Block < 1 || o.Block > 1<<40):
		return fmt.Errorf("shuffle block is %d, must be 1 to 2^40", o.Block)
	case o.Max > line.Max || o.Initial > line.Max:
		return fmt.Errorf("lease sizes: max %d, initial %d; at most 2^60", o.Max, o.Initial)
	case o.MaxBad < 0 || o.MaxBadShare < 0 || o.MaxBadShare > 1e6:
		return fmt.Errorf("limits of bad records: %d, and %d in a million; need 0 or more, and at most 1000000 in a million", o.MaxBad, o.MaxBadShare)
	case o.Isolate && o.VirtualRanks > 0:
		return errors.New("on_crash: isolate does not go with virtual ranks")
	case o.hasBackfill() && (o.Passes > 1 || o.Shuffle || o.VirtualRanks > 0):
		return errors.New("a backfill does not go with several passes, shuffle or virtual ranks")
	case o.hasBackfill() && (o.Backfill.Min < 1 || o.Backfill.Max < o.Backfill.Min || o.Backfill.Max > line.Max || o.Backfill.Initial < 1 || o.Backfill.Initial > line.Max):
		return fmt.Errorf("lease sizes of the backfill: initial %d, min %d, max %d; need 1 <= min <= max <= 2^60", o.Backfill.Initial, o.Backfill.Min, o.Backfill.Max)
	case o.DropOld && (o.Passes > 1 || o.Shuffle || o.VirtualRanks > 0):
		return errors.New("drop_older_than does not go with several passes, shuffle or virtual ranks")
	case o.Resume > ResumeStart:
		return fmt.Errorf("unknown resume %d", o.Resume)
	case o.VirtualRanks > sources.MaxVirtualRanks:
		return fmt.Errorf("%d virtual ranks, at most %d", o.VirtualRanks, sources.MaxVirtualRanks)
	case o.VirtualRanks > 0 && !(o.Shuffle && o.Strict):
		return errors.New("virtual ranks need a shuffle block and order: strict")
	case o.InOrder && o.VirtualRanks == 0:
		return errors.New("blocks in the order of the input need virtual ranks")
	case o.Shuffle && o.Strict && o.VirtualRanks == 0:
		return errors.New("order: strict and shuffle exclude each other")
	}
	return nil
}
