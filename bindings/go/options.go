// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"math"
	"runtime/cgo"
	"time"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Zero is a real 0 in a field of options where 0 means the default, which is a learning rate, for example.
const Zero = math.SmallestNonzeroFloat64

// or is the value of a field whose zero value means the default.
func or(value, standard float64) float64 {
	switch value {
	case 0:
		return standard
	case Zero:
		return 0
	}
	return value
}

func positive[T int | int64](value, standard T) T {
	if value == 0 {
		return standard
	}
	return value
}

// Never is a timeout that does not come.
const Never time.Duration = -1

// GroupOptions are the options of a group. Fields that are 0 have their default, also in a literal: without a WorldSize, rank, size and GPU come
// from the rendezvous.
type GroupOptions struct {
	Rank              int           // -1: from the rendezvous
	WorldSize         int           // 0 and -1: from the rendezvous
	Backend           Backend       // BackendAuto
	DeviceIndex       int           // GPU of this rank; -1: LOCAL_RANK
	Timeout           time.Duration // a living rank without progress for this long fails a collective; or Never
	Heartbeat         time.Duration // how often a rank shows that it lives
	DeadAfter         time.Duration // silence after which a rank counts as dead
	RendezvousTimeout time.Duration // how long NewGroup waits for all ranks
	Store             Store         // own rendezvous, with the address store://
	SumOrder          SumOrder      // ByRank; equal on all ranks
	Reproducible      bool          // sums of tensors on GPUs have the bits of sums in host memory; equal on all ranks
	Recoverable       bool          // when a rank dies the others may go on, see Group.Recover; equal on all ranks
	VirtualRanks      int           // parts of the global batch, see Group.Parts; 0: none; equal on all ranks
	Join              bool          // join a recoverable group that stands, as one more rank; false: only with DDP_JOIN=1 in the environment
	NCCLMaxCTAs       int           // most blocks of the GPU that NCCL takes, 1 to 64; 0: NCCL chooses; equal on all ranks
	FirstPort         int           // where to listen, for a firewall between hosts: from this port; 0: DDP_PORT_RANGE, or any
	LastPort          int           // to this one

	// NCCLComm is an ncclComm_t of the same ranks that is lent to the group, which never ends it; all ranks lend one, or none.
	NCCLComm unsafe.Pointer
}

// DefaultGroupOptions are what NewGroup uses when it gets nil.
func DefaultGroupOptions() *GroupOptions {
	c, _ := newGroupOptions()
	defer low.DeleteDdp_group_options(c)
	return &GroupOptions{
		Rank: int(c.GetRank()), WorldSize: int(c.GetWorld_size()), Backend: Backend(c.GetBackend()), DeviceIndex: int(c.GetDevice_index()),
		Timeout: milliseconds(c.GetTimeout_ms()), Heartbeat: milliseconds(c.GetHeartbeat_ms()),
		DeadAfter: milliseconds(c.GetDead_after_ms()), RendezvousTimeout: milliseconds(c.GetRendezvous_timeout_ms()),
		SumOrder: SumOrder(c.GetSum_order()), Reproducible: c.GetReproducible() != 0, Recoverable: c.GetRecoverable() != 0,
		VirtualRanks: int(c.GetVirtual_ranks()), NCCLMaxCTAs: int(c.GetNccl_max_ctas()),
		FirstPort: int(c.GetFirst_port()), LastPort: int(c.GetLast_port()),
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
	if o.WorldSize != 0 || o.Rank != 0 {
		c.SetRank(int32(o.Rank))
	}
	if o.WorldSize != 0 || o.DeviceIndex != 0 {
		c.SetDevice_index(int32(o.DeviceIndex))
	}
	c.SetWorld_size(int32(positive(o.WorldSize, -1)))
	c.SetBackend(int32(o.Backend))
	c.SetSum_order(int32(o.SumOrder))
	c.SetReproducible(flag(o.Reproducible))
	c.SetRecoverable(flag(o.Recoverable))
	c.SetVirtual_ranks(int32(o.VirtualRanks))
	if o.Join {
		c.SetJoin(1)
	}
	c.SetNccl_max_ctas(int32(o.NCCLMaxCTAs))
	c.SetNccl_comm(o.NCCLComm)
	c.SetFirst_port(int32(o.FirstPort))
	c.SetLast_port(int32(o.LastPort))
	c.SetTimeout_ms(positive(wholeMilliseconds(o.Timeout), c.GetTimeout_ms()))
	if o.Timeout == Never {
		c.SetTimeout_ms(0)
	}
	c.SetHeartbeat_ms(positive(wholeMilliseconds(o.Heartbeat), c.GetHeartbeat_ms()))
	c.SetDead_after_ms(positive(wholeMilliseconds(o.DeadAfter), c.GetDead_after_ms()))
	c.SetRendezvous_timeout_ms(positive(wholeMilliseconds(o.RendezvousTimeout), c.GetRendezvous_timeout_ms()))
	state := &storeState{store: o.Store}
	if o.Store != nil {
		store := low.NewDdp_store()
		defer low.DeleteDdp_store(store)
		handle := cgo.NewHandle(low.Store(state))
		defer handle.Delete()
		store.SetStruct_size(low.SizeofStore)
		store.SetSet(low.StoreSetFn)
		store.SetGet(low.StoreGetFn)
		store.SetUser_data(uintptr(handle))
		c.SetStore(store)
	}
	return fn(c, state)
}

func milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

// wholeMilliseconds rounds up: less than one is not none.
func wholeMilliseconds(d time.Duration) int64 {
	if d > 0 {
		d += time.Millisecond - 1
	} else if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// ModelOptions are the options of a model. All ranks must agree.
type ModelOptions struct {
	FirstBucketBytes int      // size at which the first bucket of a pass closes; 0: the default
	BucketBytes      int      // size at which every other bucket closes; 0: the default
	Reduce           Op       // Average or Sum over the ranks
	AllowUnused      bool     // parameters may be left out of a pass; otherwise that is an error on every rank
	Progress         Progress // which thread reduces; ranks may differ
	CheckEvery       int      // every so many Reduce passes the replicas are compared; 0: only Model.Check compares
	Drift            Drift    // what that comparison does when they differ
	Divisor          Divisor  // what Average divides the sum by
	UnevenInputs     bool     // ranks may run out of data and call Model.Join
	Wire             DType    // F16 or BF16: gradients of 32 and 64 bits travel with 16; 0: as they are
	OwnValues        bool     // libddp keeps the values from Commit on, where Value finds them; lent memory is then free
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
		AllowUnused: c.GetUnused() == int32(low.DDP_UNUSED_ALLOW), Progress: Progress(c.GetProgress()),
		CheckEvery: int(c.GetCheck_every()), Drift: Drift(c.GetDrift()),
		Divisor: Divisor(c.GetDivisor()), UnevenInputs: c.GetUneven_inputs() != 0, Wire: DType(c.GetWire()), OwnValues: c.GetOwn_values() != 0}
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
	c.SetFirst_bucket_bytes(positive(int64(o.FirstBucketBytes), c.GetFirst_bucket_bytes()))
	c.SetBucket_bytes(positive(int64(o.BucketBytes), c.GetBucket_bytes()))
	c.SetReduce(int32(o.Reduce))
	c.SetUnused(int32(flag(o.AllowUnused)))
	c.SetProgress(int32(o.Progress))
	c.SetCheck_every(int64(o.CheckEvery))
	c.SetDrift(int32(o.Drift))
	c.SetDivisor(int32(o.Divisor))
	c.SetUneven_inputs(flag(o.UnevenInputs))
	c.SetWire(int32(o.Wire))
	c.SetOwn_values(flag(o.OwnValues))
	return fn(c)
}
