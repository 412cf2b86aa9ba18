// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// PowerSGD compresses gradients to a few vectors; start from DefaultPowerSGD. All ranks must agree.
type PowerSGD struct {
	Rank               int     // vectors that stand for a matrix; 0: the default
	StartPass          int64   // passes that are reduced plainly first
	MinCompressionRate float64 // compress only where at least this is gained; 0: the default
	Seed               int64
	WarmStart          bool // begin a pass with the vectors of the one before
	ErrorFeedback      bool // what was lost is added to the next pass's gradient
}

// DefaultPowerSGD has the defaults of libddp.
func DefaultPowerSGD() *PowerSGD {
	c := low.NewDdp_powersgd_options()
	defer low.DeleteDdp_powersgd_options(c)
	_ = low.Ddp_powersgd_options_init(c, low.SizeofPowerSGDOptions)
	return &PowerSGD{Rank: int(c.GetRank()), StartPass: c.GetStart_pass(), MinCompressionRate: c.GetMin_compression_rate(), Seed: c.GetSeed(),
		WarmStart: c.GetWarm_start() != 0, ErrorFeedback: c.GetError_feedback() != 0}
}

func (o *PowerSGD) with(fn func(options uintptr) error) error {
	c := low.NewDdp_powersgd_options()
	defer low.DeleteDdp_powersgd_options(c)
	if err := low.Ddp_powersgd_options_init(c, low.SizeofPowerSGDOptions); err != nil {
		return err
	}
	c.SetRank(int32(positive(o.Rank, int(c.GetRank()))))
	c.SetStart_pass(o.StartPass)
	c.SetMin_compression_rate(or(o.MinCompressionRate, c.GetMin_compression_rate()))
	c.SetSeed(o.Seed)
	c.SetWarm_start(flag(o.WarmStart))
	c.SetError_feedback(flag(o.ErrorFeedback))
	return fn(c.Swigcptr())
}

// SetPowerSGD lets gradients travel compressed, before Commit; nil is DefaultPowerSGD.
func (m *Model) SetPowerSGD(options *PowerSGD) error {
	defer runtime.KeepAlive(m)
	if options == nil {
		options = DefaultPowerSGD()
	}
	return options.with(func(c uintptr) error { return low.Ddp_model_set_hook(m.id(), low.HookPowerSGD, c, nil) })
}

// AllReducePowerSGD reduces the contents as Model.SetPowerSGD does; the options of the first call stay, nil is DefaultPowerSGD.
func (b *Bucket) AllReducePowerSGD(options *PowerSGD) error {
	if options == nil {
		options = DefaultPowerSGD()
	}
	return options.with(func(c uintptr) error { return low.Ddp_hook_powersgd(c, b.handle) })
}

// IsUsed tells whether any rank contributed to the gradient at a position of the bucket; what a hook makes of another is dropped.
func (b *Bucket) IsUsed(position int) bool {
	return low.Ddp_bucket_is_used(b.handle, int32(position)) == 1
}
