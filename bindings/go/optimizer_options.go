// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// NonFinite says what a step does about gradients with infinite or NaN elements; every rank does the same.
type NonFinite int32

// NonFiniteKeep lets them reach the parameters, NonFiniteSkip leaves the step out, NonFiniteFail fails it and changes nothing.
const (
	NonFiniteKeep NonFinite = 0
	NonFiniteSkip NonFinite = 1
	NonFiniteFail NonFinite = 2
)

// StepOptions are what all optimizers have in common.
type StepOptions struct {
	Shard         bool // each rank keeps the state of its slice of the parameters alone; some calls are then collective, see the header
	InBackward    bool // the update of a bucket follows its reduction at once; Step ends it, after every Reduce pass
	NoUndo        bool // with InBackward: after a failed pass parameters must be loaded again; saves the memory for taking it back
	MasterWeights bool // 16-bit parameters are rounded copies of 32-bit ones, which belong to the state
	NonFinite     NonFinite
	MaxNorm       float64 // above 0: the 2-norm of all gradients that a step uses is at most this
	ClipValue     float64 // above 0: so is the magnitude of each element, after MaxNorm
	DivideInStep  bool    // on a GPU gradients may be sums from the pass to Step, which divides them
	LateValues    bool    // with Shard: Step returns before the values of the other ranks have come; wait for each with WaitValue
	Parameters    []int   // that the optimizer changes, by number; none: all that have no optimizer
}

// fill gives the C struct with these options; the caller frees it with freeOptions.
func (o *StepOptions) fill() (low.Ddp_optimizer_options, error) {
	c := low.NewDdp_optimizer_options()
	if err := low.Ddp_optimizer_options_init(c, low.SizeofOptimizerOptions); err != nil {
		low.DeleteDdp_optimizer_options(c)
		return nil, err
	}
	writeFields([]field{
		truth(&o.Shard, c.GetShard, c.SetShard),
		truth(&o.InBackward, c.GetIn_backward, c.SetIn_backward), untruth(&o.NoUndo, c.GetUndo, c.SetUndo),
		truth(&o.MasterWeights, c.GetMaster_weights, c.SetMaster_weights), number(&o.NonFinite, c.GetNonfinite, c.SetNonfinite),
		truth(&o.DivideInStep, c.GetDivide_in_step, c.SetDivide_in_step), truth(&o.LateValues, c.GetLate_values, c.SetLate_values),
		fraction(&o.MaxNorm, c.GetMax_norm, c.SetMax_norm), fraction(&o.ClipValue, c.GetClip_value, c.SetClip_value),
	})
	if len(o.Parameters) > 0 {
		list := (*int32)(low.CText(string(make([]byte, 4*len(o.Parameters))))) // C must not keep Go's pointers
		for k, index := range o.Parameters {
			unsafe.Slice(list, len(o.Parameters))[k] = int32(index)
		}
		c.SetParameters(list)
		c.SetParameter_count(int64(len(o.Parameters)))
	}
	return c, nil
}

func freeOptions(c low.Ddp_optimizer_options) {
	if list := c.GetParameters(); list != nil {
		low.FreeText(unsafe.Pointer(list))
	}
	low.DeleteDdp_optimizer_options(c)
}

// SGDOptions are the options of stochastic gradient descent.
type SGDOptions struct {
	Rate                             float64 // 0: the default; Zero: 0
	Momentum, Dampening, WeightDecay float64
	Nesterov                         bool
	StepOptions
}

func (o *SGDOptions) fields(c low.Ddp_sgd_options) []field {
	return []field{
		setting(&o.Rate, c.GetRate, c.SetRate), fraction(&o.Momentum, c.GetMomentum, c.SetMomentum),
		fraction(&o.Dampening, c.GetDampening, c.SetDampening), fraction(&o.WeightDecay, c.GetWeight_decay, c.SetWeight_decay),
		truth(&o.Nesterov, c.GetNesterov, c.SetNesterov),
	}
}

// DefaultSGDOptions are what NewSGD uses when it gets nil.
func DefaultSGDOptions() *SGDOptions {
	c := low.NewDdp_sgd_options()
	defer low.DeleteDdp_sgd_options(c)
	_ = low.Ddp_sgd_options_init(c, low.SizeofSGDOptions)
	o := &SGDOptions{}
	readFields(o.fields(c))
	return o
}

// NewSGD makes an optimizer for the parameters that options name, or all that have no optimizer; options may be nil.
func NewSGD(model *Model, options *SGDOptions) (*Optimizer, error) {
	if options == nil {
		options = DefaultSGDOptions()
	}
	c := low.NewDdp_sgd_options()
	defer low.DeleteDdp_sgd_options(c)
	if err := low.Ddp_sgd_options_init(c, low.SizeofSGDOptions); err != nil {
		return nil, err
	}
	writeFields(options.fields(c))
	shared, err := options.StepOptions.fill()
	if err != nil {
		return nil, err
	}
	defer freeOptions(shared)
	return newOptimizer(model, func(out *uintptr) error { return low.Ddp_optimizer_create_sgd(model.id(), c, shared, out) })
}

// AdamOptions are the options of Adam and AdamW. &AdamOptions{Rate: 0.01} is plain Adam without weight decay, DefaultAdamOptions is AdamW.
type AdamOptions struct {
	Rate, Beta1, Beta2 float64 // 0: the default; Zero: 0
	Epsilon            float64 // 0: the default; a real 0 is refused, because it makes NaN of what has no gradient
	WeightDecay        float64 // 0: none
	Decoupled          bool    // AdamW; otherwise the decay is added to the gradient
	StepOptions
}

func (o *AdamOptions) fields(c low.Ddp_adam_options) []field {
	return []field{
		setting(&o.Rate, c.GetRate, c.SetRate), setting(&o.Beta1, c.GetBeta1, c.SetBeta1), setting(&o.Beta2, c.GetBeta2, c.SetBeta2),
		setting(&o.Epsilon, c.GetEpsilon, c.SetEpsilon), fraction(&o.WeightDecay, c.GetWeight_decay, c.SetWeight_decay),
		truth(&o.Decoupled, c.GetDecoupled, c.SetDecoupled),
	}
}

// DefaultAdamOptions are what NewAdam uses when it gets nil: AdamW.
func DefaultAdamOptions() *AdamOptions {
	c := low.NewDdp_adam_options()
	defer low.DeleteDdp_adam_options(c)
	_ = low.Ddp_adam_options_init(c, low.SizeofAdamOptions)
	o := &AdamOptions{}
	readFields(o.fields(c))
	return o
}

// NewAdam makes an optimizer for the parameters that options name, or all that have no optimizer; options may be nil.
func NewAdam(model *Model, options *AdamOptions) (*Optimizer, error) {
	if options == nil {
		options = DefaultAdamOptions()
	}
	c := low.NewDdp_adam_options()
	defer low.DeleteDdp_adam_options(c)
	if err := low.Ddp_adam_options_init(c, low.SizeofAdamOptions); err != nil {
		return nil, err
	}
	writeFields(options.fields(c))
	shared, err := options.StepOptions.fill()
	if err != nil {
		return nil, err
	}
	defer freeOptions(shared)
	return newOptimizer(model, func(out *uintptr) error { return low.Ddp_optimizer_create_adam(model.id(), c, shared, out) })
}
