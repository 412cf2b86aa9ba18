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

func (o *PowerSGD) fields(c low.Ddp_powersgd_options) []field {
	return []field{
		count(&o.Rank, c.GetRank, c.SetRank), number(&o.StartPass, c.GetStart_pass, c.SetStart_pass),
		setting(&o.MinCompressionRate, c.GetMin_compression_rate, c.SetMin_compression_rate), number(&o.Seed, c.GetSeed, c.SetSeed),
		truth(&o.WarmStart, c.GetWarm_start, c.SetWarm_start), truth(&o.ErrorFeedback, c.GetError_feedback, c.SetError_feedback),
	}
}

// DefaultPowerSGD has the defaults of libddp.
func DefaultPowerSGD() *PowerSGD {
	c := low.NewDdp_powersgd_options()
	defer low.DeleteDdp_powersgd_options(c)
	_ = low.Ddp_powersgd_options_init(c, low.SizeofPowerSGDOptions)
	o := &PowerSGD{}
	readFields(o.fields(c))
	return o
}

func (o *PowerSGD) with(fn func(options uintptr) error) error {
	c := low.NewDdp_powersgd_options()
	defer low.DeleteDdp_powersgd_options(c)
	if err := low.Ddp_powersgd_options_init(c, low.SizeofPowerSGDOptions); err != nil {
		return err
	}
	writeFields(o.fields(c))
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
