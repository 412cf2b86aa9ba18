package ddp

import (
	"runtime"
	"time"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// RecoverOptions are the options of a recovery, equal on all ranks. Fields that are 0 have their default.
type RecoverOptions struct {
	Wait      time.Duration // for a rank that lives but does not call Recover; or Never, which waits as long as it takes
	MinRanks  int           // with fewer Recover fails with TooFewRanks; 0: 1
	AllowHalf bool          // where ranks are only silent, half of them may go on too, if the lowest is among them
}

// Recovery is what Recover came to.
type Recovery struct {
	Rank, Size                 int           // of this rank, and number of ranks, now
	PreviousRank, PreviousSize int           // before
	Generation                 int64         // 1 for the group as it was made, and one more with each recovery
	Source                     int           // rank (of now) whose parameters, buffers and optimizers all have now; -1: all had the same
	Took                       time.Duration // the call
}

// RankProgress is where a rank was when it was last heard.
type RankProgress struct {
	Pass   int64         // backward pass in which it was, counted from 0; -1: none yet
	Bucket int           // bucket of that pass; -1: none
	Silent time.Duration // since it was heard
}

// Recover goes on with the ranks that are left, after a call on the group or on what was made from it failed with PeerFailed, Aborted or
// TimedOut. All ranks that are left call; then they repeat the call or step that failed. Needs GroupOptions.Recoverable. Options may be nil.
//
// Ranks are numbered anew: make samplers again. Models, optimizers, averages and slices stay, and every rank has the parameters, buffers and
// optimizers of the last step that all have made; gradients are void. What the program keeps itself it sends from Recovery.Source. It fails
// with TooFewRanks where this part of the ranks may not go on, and with Fenced where the others have gone on without this rank. Collective; no
// other call may use the group or what was made from it meanwhile, but for Abort, which waits for the end of the recovery.
func (g *Group) Recover(options *RecoverOptions) (Recovery, error) {
	defer runtime.KeepAlive(g)
	if options == nil {
		options = &RecoverOptions{}
	}
	c, r := low.NewDdp_recover_options(), low.NewDdp_recovery()
	defer low.DeleteDdp_recover_options(c)
	defer low.DeleteDdp_recovery(r)
	if err := low.Ddp_recover_options_init(c, low.SizeofRecoverOptions); err != nil {
		return Recovery{}, err
	}
	c.SetWait_ms(positive(wholeMilliseconds(options.Wait), c.GetWait_ms()))
	if options.Wait == Never {
		c.SetWait_ms(0)
	}
	c.SetMin_ranks(int32(positive(options.MinRanks, int(c.GetMin_ranks()))))
	c.SetAllow_half(flag(options.AllowHalf))
	r.SetStruct_size(low.SizeofRecovery)
	g.recovering.Lock()
	defer g.recovering.Unlock()
	if err := low.Ddp_group_recover(g.id(), c, r); err != nil {
		return Recovery{}, err
	}
	return Recovery{
		Rank: int(r.GetRank()), Size: int(r.GetSize()), PreviousRank: int(r.GetPrevious_rank()), PreviousSize: int(r.GetPrevious_size()),
		Generation: r.GetGeneration(), Source: int(r.GetSource()), Took: seconds(r.GetSeconds()),
	}, nil
}

// Failed are the ranks that broke the group, numbered as in the broken group; empty while the group is whole.
func (g *Group) Failed() ([]int, error) {
	defer runtime.KeepAlive(g)
	var count int32
	if err := low.Ddp_group_get_failed(g.id(), nil, 0, &count); err != nil || count == 0 {
		return nil, err
	}
	ranks, found := make([]int32, count), int32(0)
	if err := low.Ddp_group_get_failed(g.id(), &ranks[0], count, &found); err != nil {
		return nil, err
	}
	failed := make([]int, 0, count)
	for i := int32(0); i < count && i < found; i++ {
		failed = append(failed, int(ranks[i]))
	}
	return failed, nil
}

// Progress is where a rank was when it was last heard.
func (g *Group) Progress(rank int) (RankProgress, error) {
	defer runtime.KeepAlive(g)
	c := low.NewDdp_rank_progress()
	defer low.DeleteDdp_rank_progress(c)
	c.SetStruct_size(low.SizeofRankProgress)
	if err := low.Ddp_group_get_progress(g.id(), int32(rank), c); err != nil {
		return RankProgress{}, err
	}
	return RankProgress{Pass: c.GetPass_index(), Bucket: int(c.GetBucket()), Silent: seconds(c.GetSilent())}, nil
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }
