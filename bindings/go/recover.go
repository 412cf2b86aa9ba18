// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"
	"time"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// RecoverOptions are the options of a recovery, equal on all ranks. Fields that are 0 have their default.
type RecoverOptions struct {
	Wait      time.Duration // for a rank that lives but does not call Recover; or Never, which waits as long as it takes
	MinRanks  int           // with fewer Recover fails with TooFewRanks; 0: 1
	AllowHalf bool          // where ranks are only silent, half of them may go on too, if the lowest is among them
	CoolDown  time.Duration // how long new ranks of a host on which three ranks have died are kept out at first; or Never: they are not
}

// Recovery is what Recover came to.
type Recovery struct {
	Rank, Size                 int           // of this rank, and number of ranks, now
	PreviousRank, PreviousSize int           // before
	Generation                 int64         // 1 for the group as it was made, and one more with each recovery
	Source                     int           // rank (of now) whose parameters, buffers and optimizers all have now; -1: all had the same
	Took                       time.Duration // the call
	Step                       int64         // steps that the optimizers have made: repeat Step + 1; -1: none counts, or a checkpoint has to be loaded
	Gone                       []int         // ranks (of before) that are not there any more
	Joined                     []int         // ranks (of now) that are new
	Renumbered                 []int         // by rank of before: the rank of now; -1: it is gone
	WentBack                   int64         // steps that are repeated because all went back to what State.Keep has kept
	KeptEpoch, KeptStep        int64         // of that state; -1: they did not go back
	Own                        []byte        // the program's own bytes that were kept with it
}

// RankProgress is where a rank was when it was last heard.
type RankProgress struct {
	Pass   int64         // backward pass in which it was, counted from 0; -1: none yet
	Bucket int           // bucket of that pass; -1: none
	Silent time.Duration // since it was heard
	Call   string        // the last collective call that it made, as C names it: "ddp_group_barrier"; "": none yet
	InCall bool          // it was in this call; otherwise it had returned from it, and computed
}

// Recover goes on with the ranks that are left, after a call on the group or on what was made from it failed with PeerFailed, Aborted or
// TimedOut. All ranks that are left call; then they repeat the call or step that failed. Needs GroupOptions.Recoverable. Options may be nil.
//
// Ranks are numbered anew: make samplers again. Models, optimizers, averages and slices stay, and every rank has the parameters, buffers and
// optimizers of the last step that all have made; gradients are void. What the program keeps itself it sends from Recovery.Source. It fails
// with TooFewRanks where fewer than MinRanks are left, with NoMajority where others may go on without this rank, and with Fenced where they
// have. Collective; no other call may use the group or what was made from it meanwhile, but for Abort, which waits for the end of the recovery.
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
	c.SetCool_down_ms(positive(wholeMilliseconds(options.CoolDown), c.GetCool_down_ms()))
	if options.CoolDown == Never {
		c.SetCool_down_ms(0)
	}
	r.SetStruct_size(low.SizeofRecovery)
	g.recovering.Lock()
	defer g.recovering.Unlock()
	if err := low.Ddp_group_recover(g.id(), c, r); err != nil {
		return Recovery{}, err
	}
	found := Recovery{
		Rank: int(r.GetRank()), Size: int(r.GetSize()), PreviousRank: int(r.GetPrevious_rank()), PreviousSize: int(r.GetPrevious_size()),
		Generation: r.GetGeneration(), Source: int(r.GetSource()), Took: seconds(r.GetSeconds()), Step: r.GetStep(),
		WentBack: r.GetWent_back(), KeptEpoch: r.GetKept_epoch(), KeptStep: r.GetKept_step(),
	}
	if found.KeptEpoch >= 0 {
		var bytes int64
		own := make([]byte, 65536)
		if err := low.Ddp_group_get_kept(g.id(), unsafe.Pointer(&own[0]), int64(len(own)), &bytes); err != nil {
			return found, err
		}
		found.Own = own[:bytes]
	}
	var err error
	if found.Gone, err = g.ranks(low.Ddp_group_get_gone); err != nil {
		return found, err
	}
	if found.Joined, err = g.ranks(low.Ddp_group_get_joined); err != nil {
		return found, err
	}
	found.Renumbered, err = g.ranks(low.Ddp_group_get_renumbered)
	return found, err
}

// Failed are the ranks that broke the group, numbered as in the broken group; empty while the group is whole.
func (g *Group) Failed() ([]int, error) { return g.ranks(low.Ddp_group_get_failed) }

// Joined are the ranks that the last recovery took in, numbered as now. A rank that has joined is among them, until the next recovery.
func (g *Group) Joined() ([]int, error) { return g.ranks(low.Ddp_group_get_joined) }

// ranks asks how many there are, and then for them.
func (g *Group) ranks(get func(group uintptr, ranks *int32, capacity int32, count *int32) error) ([]int, error) {
	defer runtime.KeepAlive(g)
	var count int32
	if err := get(g.id(), nil, 0, &count); err != nil || count == 0 {
		return nil, err
	}
	raw, found := make([]int32, count), int32(0)
	if err := get(g.id(), &raw[0], count, &found); err != nil {
		return nil, err
	}
	list := make([]int, 0, count)
	for i := int32(0); i < count && i < found; i++ {
		list = append(list, int(raw[i]))
	}
	return list, nil
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
	return RankProgress{
		Pass: c.GetPass_index(), Bucket: int(c.GetBucket()), Silent: seconds(c.GetSilent()), Call: low.Ddp_call_name(c.GetCall()), InCall: c.GetIn_call() != 0,
	}, nil
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }
