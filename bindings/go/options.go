package ddp

import (
	"runtime/cgo"
	"time"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// GroupOptions are the options of a group; start from DefaultGroupOptions.
type GroupOptions struct {
	Rank              int           // -1: from the rendezvous
	WorldSize         int           // -1: from the rendezvous
	Backend           Backend       // BackendAuto
	DeviceIndex       int           // GPU of this rank; -1: LOCAL_RANK
	Timeout           time.Duration // a living rank without progress for this long fails a collective; 0: never
	Heartbeat         time.Duration // how often a rank shows that it lives
	DeadAfter         time.Duration // silence after which a rank counts as dead
	RendezvousTimeout time.Duration // how long NewGroup waits for all ranks
	Store             Store         // own rendezvous, with the address store://
}

// DefaultGroupOptions are what NewGroup uses when it gets nil.
func DefaultGroupOptions() *GroupOptions {
	c, _ := newGroupOptions()
	defer low.DeleteDdp_group_options(c)
	return &GroupOptions{
		Rank: int(c.GetRank()), WorldSize: int(c.GetWorld_size()), Backend: Backend(c.GetBackend()), DeviceIndex: int(c.GetDevice_index()),
		Timeout: milliseconds(c.GetTimeout_ms()), Heartbeat: milliseconds(c.GetHeartbeat_ms()),
		DeadAfter: milliseconds(c.GetDead_after_ms()), RendezvousTimeout: milliseconds(c.GetRendezvous_timeout_ms()),
	}
}

func newGroupOptions() (low.Ddp_group_options, error) {
	c := low.NewDdp_group_options()
	return c, low.Ddp_group_options_init(c, low.SizeofGroupOptions)
}

// with lends C's form of the options and the store's state to fn.
func (o *GroupOptions) with(fn func(low.Ddp_group_options, *storeState) error) error {
	if o == nil {
		return fn(nil, &storeState{})
	}
	c, err := newGroupOptions()
	defer low.DeleteDdp_group_options(c)
	if err != nil {
		return err
	}
	c.SetRank(int32(o.Rank))
	c.SetWorld_size(int32(o.WorldSize))
	c.SetBackend(low.Enum_SS_ddp_backend(o.Backend))
	c.SetDevice_index(int32(o.DeviceIndex))
	c.SetTimeout_ms(o.Timeout.Milliseconds())
	c.SetHeartbeat_ms(o.Heartbeat.Milliseconds())
	c.SetDead_after_ms(o.DeadAfter.Milliseconds())
	c.SetRendezvous_timeout_ms(o.RendezvousTimeout.Milliseconds())
	state := &storeState{store: o.Store}
	if o.Store != nil {
		store := low.NewDdp_store()
		defer low.DeleteDdp_store(store)
		handle := cgo.NewHandle(low.Store(state))
		defer handle.Delete()
		store.SetSet(low.StoreSetFn)
		store.SetGet(low.StoreGetFn)
		store.SetUser_data(uintptr(handle))
		c.SetStore(store)
	}
	return fn(c, state)
}

func milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

// ModelOptions are the options of a model; start from DefaultModelOptions. All ranks must agree.
type ModelOptions struct {
	FirstBucketBytes int      // size at which the first bucket of a pass closes
	BucketBytes      int      // size at which every other bucket closes
	Reduce           Op       // Average or Sum over the ranks
	AllowUnused      bool     // parameters may be left out of a pass; otherwise that is an error on every rank
	Progress         Progress // which thread reduces; ranks may differ
	CheckEvery       int      // every so many Reduce passes the replicas are compared; 0: only Model.Check compares
	Drift            Drift    // what that comparison does when they differ
	Divisor          Divisor  // what Average divides the sum by
	UnevenInputs     bool     // ranks may run out of data and call Model.Join
}

// Divisor says what Average divides the sum over the ranks by.
type Divisor int32

// DivisorWorld is the number of ranks; DivisorWeights the sum of the weights of those that contributed, see Model.SetWeight.
const (
	DivisorWorld   Divisor = 0
	DivisorWeights Divisor = 1
)

// Drift says what a comparison by CheckEvery does when replicas differ.
type Drift int32

// DriftReport fails Pass.End with Mismatch; DriftResend sends what most ranks hold to all.
const (
	DriftReport Drift = 0
	DriftResend Drift = 1
)

// Progress says which thread does the work of reducing. The bits are the same.
type Progress int32

// The ways of progress.
const (
	ProgressAuto   Progress = 0
	ProgressCaller Progress = 1
	ProgressThread Progress = 2
)

// DefaultModelOptions are what NewModel uses when it gets nil.
func DefaultModelOptions() *ModelOptions {
	c := low.NewDdp_model_options()
	defer low.DeleteDdp_model_options(c)
	_ = low.Ddp_model_options_init(c, low.SizeofModelOptions)
	return &ModelOptions{FirstBucketBytes: int(c.GetFirst_bucket_bytes()), BucketBytes: int(c.GetBucket_bytes()), Reduce: Op(c.GetReduce()),
		AllowUnused: c.GetUnused() == low.Enum_SS_ddp_unused(low.DDP_UNUSED_ALLOW), Progress: Progress(c.GetProgress()),
		CheckEvery: int(c.GetCheck_every()), Drift: Drift(c.GetDrift()),
		Divisor: Divisor(c.GetDivisor()), UnevenInputs: c.GetUneven_inputs() != 0}
}

func (o *ModelOptions) with(fn func(low.Ddp_model_options) error) error {
	if o == nil {
		return fn(nil)
	}
	c := low.NewDdp_model_options()
	defer low.DeleteDdp_model_options(c)
	if err := low.Ddp_model_options_init(c, low.SizeofModelOptions); err != nil {
		return err
	}
	c.SetFirst_bucket_bytes(int64(o.FirstBucketBytes))
	c.SetBucket_bytes(int64(o.BucketBytes))
	c.SetReduce(low.Enum_SS_ddp_reduce(o.Reduce))
	c.SetUnused(low.Enum_SS_ddp_unused(flag(o.AllowUnused)))
	c.SetProgress(low.Enum_SS_ddp_progress(o.Progress))
	c.SetCheck_every(int64(o.CheckEvery))
	c.SetDrift(low.Enum_SS_ddp_drift(o.Drift))
	c.SetDivisor(low.Enum_SS_ddp_divisor(o.Divisor))
	c.SetUneven_inputs(flag(o.UnevenInputs))
	return fn(c)
}
