// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime/cgo"
	"time"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

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
	Requests          bool          // open the channel of posted collectives with the group; equal on all ranks
	ConnectAll        bool          // make all connections for messages with the group; equal on all ranks
	OneThread         bool          // one goroutine at a time uses the group: ranks that wait for each other in messages find out
	Links             Links         // LinksAuto: encrypted between hosts; equal on all ranks

	// NCCLComm is an ncclComm_t of the same ranks that is lent to the group, which never ends it; all ranks lend one, or none.
	NCCLComm unsafe.Pointer
}

// fields ties the options to C's.
func (o *GroupOptions) fields(c low.Ddp_group_options) []field {
	return []field{
		o.place(&o.Rank, c.GetRank, c.SetRank), o.place(&o.DeviceIndex, c.GetDevice_index, c.SetDevice_index),
		count(&o.WorldSize, c.GetWorld_size, c.SetWorld_size),
		number(&o.Backend, c.GetBackend, c.SetBackend),
		duration(&o.Timeout, c.GetTimeout_ms, func(ms int64) {
			if o.Timeout == Never {
				ms = 0
			}
			c.SetTimeout_ms(ms)
		}),
		duration(&o.Heartbeat, c.GetHeartbeat_ms, c.SetHeartbeat_ms), duration(&o.DeadAfter, c.GetDead_after_ms, c.SetDead_after_ms),
		duration(&o.RendezvousTimeout, c.GetRendezvous_timeout_ms, c.SetRendezvous_timeout_ms),
		number(&o.SumOrder, c.GetSum_order, c.SetSum_order),
		truth(&o.Reproducible, c.GetReproducible, c.SetReproducible), truth(&o.Recoverable, c.GetRecoverable, c.SetRecoverable),
		number(&o.VirtualRanks, c.GetVirtual_ranks, c.SetVirtual_ranks), truth(&o.ConnectAll, c.GetConnect_all, c.SetConnect_all),
		number(&o.Links, c.GetLinks, c.SetLinks),
		truth(&o.Requests, c.GetRequests, c.SetRequests), truth(&o.OneThread, c.GetOne_thread, c.SetOne_thread),
		{func() {}, func() {
			if o.Join { // otherwise DDP_JOIN decides
				c.SetJoin(1)
			}
		}},
		number(&o.NCCLMaxCTAs, c.GetNccl_max_ctas, c.SetNccl_max_ctas),
		number(&o.FirstPort, c.GetFirst_port, c.SetFirst_port), number(&o.LastPort, c.GetLast_port, c.SetLast_port),
		{func() { o.NCCLComm = c.GetNccl_comm() }, func() { c.SetNccl_comm(o.NCCLComm) }},
	}
}

// place is a field that the rendezvous fills unless there is a WorldSize; then 0 is itself.
func (o *GroupOptions) place(value *int, get func() int32, set func(int32)) field {
	return field{func() { *value = int(get()) }, func() {
		if o.WorldSize != 0 || *value != 0 {
			set(int32(*value))
		}
	}}
}

// DefaultGroupOptions are what NewGroup uses when it gets nil.
func DefaultGroupOptions() *GroupOptions {
	c, _ := newGroupOptions()
	defer low.DeleteDdp_group_options(c)
	o := &GroupOptions{}
	readFields(o.fields(c))
	return o
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
	writeFields(o.fields(c))
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

// fields ties the options to C's.
func (o *ModelOptions) fields(c low.Ddp_model_options) []field {
	return []field{
		count(&o.FirstBucketBytes, c.GetFirst_bucket_bytes, c.SetFirst_bucket_bytes), count(&o.BucketBytes, c.GetBucket_bytes, c.SetBucket_bytes),
		number(&o.Reduce, c.GetReduce, c.SetReduce),
		truth(&o.AllowUnused, c.GetUnused, c.SetUnused),
		number(&o.Progress, c.GetProgress, c.SetProgress),
		number(&o.CheckEvery, c.GetCheck_every, c.SetCheck_every), number(&o.Drift, c.GetDrift, c.SetDrift),
		number(&o.Divisor, c.GetDivisor, c.SetDivisor),
		truth(&o.UnevenInputs, c.GetUneven_inputs, c.SetUneven_inputs),
		number(&o.Wire, c.GetWire, c.SetWire),
		truth(&o.OwnValues, c.GetOwn_values, c.SetOwn_values),
	}
}

// DefaultModelOptions are what NewModel uses when it gets nil.
func DefaultModelOptions() *ModelOptions {
	c := low.NewDdp_model_options()
	defer low.DeleteDdp_model_options(c)
	_ = low.Ddp_model_options_init(c, low.SizeofModelOptions)
	o := &ModelOptions{}
	readFields(o.fields(c))
	return o
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
	writeFields(o.fields(c))
	return fn(c)
}
