// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"
	"time"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// OuterOptions are the options of an outer optimizer, equal on all ranks. What is 0 is the default, where the header has another one than 0.
type OuterOptions struct {
	Every           int64   // steps between two exchanges of a parameter
	Overlap         int64   // steps for which an exchange may be under way
	Rate            float64 // of the outer optimizer
	Momentum        float64 // 0: the default; Zero: 0
	Keep            float64 // share of a rank's own values in what follows an exchange
	Fragments       int32   // parts of the model that are exchanged at different steps
	PlainMomentum   bool    // not Nesterov's
	Bits            int32   // of an element of a movement as it travels: 32, 16, 8 or 4
	NoErrorFeedback bool    // with 8 and 4 bits: what rounding lost is lost
}

// Outer is the outer optimizer of a model whose passes are Local: DiLoCo, for training over slow links.
type Outer struct {
	owner
	model *Model
}

// NewOuter makes the outer optimizer of a committed model; options may be nil.
func NewOuter(model *Model, options *OuterOptions) (*Outer, error) {
	defer runtime.KeepAlive(model)
	if options == nil {
		options = &OuterOptions{}
	}
	c := low.NewDdp_outer_options()
	defer low.DeleteDdp_outer_options(c)
	if err := low.Ddp_outer_options_init(c, low.SizeofOuterOptions); err != nil {
		return nil, err
	}
	options.fill(c)
	var handle uintptr
	if err := low.Ddp_outer_create(model.id(), c, &handle); err != nil {
		return nil, err
	}
	outer := &Outer{model: model}
	outer.handle.Store(handle)
	runtime.SetFinalizer(outer, (*Outer).Close)
	return outer, nil
}

func (o *OuterOptions) fill(c low.Ddp_outer_options) {
	writeFields([]field{
		count(&o.Every, c.GetEvery, c.SetEvery), number(&o.Overlap, c.GetOverlap, c.SetOverlap),
		setting(&o.Rate, c.GetRate, c.SetRate), setting(&o.Momentum, c.GetMomentum, c.SetMomentum), fraction(&o.Keep, c.GetKeep, c.SetKeep),
		count(&o.Fragments, c.GetFragments, c.SetFragments), count(&o.Bits, c.GetBits, c.SetBits),
		untruth(&o.PlainMomentum, c.GetNesterov, c.SetNesterov), untruth(&o.NoErrorFeedback, c.GetError_feedback, c.SetError_feedback),
	})
}

// Close releases the outer optimizer. The parameters keep what they hold. A nil Outer is allowed.
func (o *Outer) Close() error {
	if o != nil {
		o.destroy(low.Ddp_outer_destroy)
	}
	return nil
}

// Step comes after each step of the rank's own optimizer: it begins the exchanges that are due and takes what others have brought. Collective.
func (o *Outer) Step() error {
	defer runtime.KeepAlive(o)
	return low.Ddp_outer_step(o.id())
}

// Sync exchanges everything at once; afterwards the replicas are equal. Call it before evaluation and checkpoints. Collective.
func (o *Outer) Sync() error {
	defer runtime.KeepAlive(o)
	return low.Ddp_outer_sync(o.id())
}

// OuterStats are numbers of an outer optimizer.
type OuterStats struct {
	Steps, Exchanges, UnderWay, SentBytes int64
	Wait                                  time.Duration // in Step and Sync, for exchanges
}

// Stats gives what the exchanges have come to.
func (o *Outer) Stats() (OuterStats, error) {
	defer runtime.KeepAlive(o)
	c := low.NewDdp_outer_stats()
	defer low.DeleteDdp_outer_stats(c)
	c.SetStruct_size(low.SizeofOuterStats)
	if err := low.Ddp_outer_get_stats(o.id(), c); err != nil {
		return OuterStats{}, err
	}
	return OuterStats{Steps: c.GetSteps(), Exchanges: c.GetExchanges(), UnderWay: c.GetUnder_way(), SentBytes: c.GetSent_bytes(),
		Wait: time.Duration(c.GetWait_ns())}, nil
}
