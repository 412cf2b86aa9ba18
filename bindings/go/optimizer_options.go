// SPDX-License-Identifier: Apache-2.0

package ddp

import "github.com/libddp/libddp/bindings/go/internal/low"

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
	KeepCopy      bool // with Shard, in a group with Recoverable: a rank's slice outlives its death, see the header
	InBackward    bool // the update of a bucket follows its reduction at once; Step ends it, after every Reduce pass
	NoUndo        bool // with InBackward: after a failed pass parameters must be loaded again; saves the memory for taking it back
	MasterWeights bool // 16-bit parameters are rounded copies of 32-bit ones, which belong to the state
	NonFinite     NonFinite
	MaxNorm       float64 // above 0: the 2-norm of all gradients that a step uses is at most this
	ClipValue     float64 // above 0: so is the magnitude of each element, after MaxNorm
}

// fill gives the C struct with these options; the caller deletes it.
func (o *StepOptions) fill() (low.Ddp_optimizer_options, error) {
	c := low.NewDdp_optimizer_options()
	if err := low.Ddp_optimizer_options_init(c, low.SizeofOptimizerOptions); err != nil {
		low.DeleteDdp_optimizer_options(c)
		return nil, err
	}
	c.SetShard(flag(o.Shard))
	c.SetKeep_copy(flag(o.KeepCopy))
	c.SetIn_backward(flag(o.InBackward))
	c.SetUndo(flag(!o.NoUndo))
	c.SetMaster_weights(flag(o.MasterWeights))
	c.SetNonfinite(int32(o.NonFinite))
	c.SetMax_norm(o.MaxNorm)
	c.SetClip_value(o.ClipValue)
	return c, nil
}

// SGDOptions are the options of stochastic gradient descent.
type SGDOptions struct {
	Rate                             float64 // 0: the default; Zero: 0
	Momentum, Dampening, WeightDecay float64
	Nesterov                         bool
	StepOptions
}

// DefaultSGDOptions are what NewSGD uses when it gets nil.
func DefaultSGDOptions() *SGDOptions {
	c := low.NewDdp_sgd_options()
	defer low.DeleteDdp_sgd_options(c)
	_ = low.Ddp_sgd_options_init(c, low.SizeofSGDOptions)
	return &SGDOptions{Rate: c.GetRate(), Momentum: c.GetMomentum(), Dampening: c.GetDampening(), WeightDecay: c.GetWeight_decay(),
		Nesterov: c.GetNesterov() != 0}
}

// NewSGD makes an optimizer for all parameters of the model; options may be nil.
func NewSGD(model *Model, options *SGDOptions) (*Optimizer, error) {
	if options == nil {
		options = DefaultSGDOptions()
	}
	c := low.NewDdp_sgd_options()
	defer low.DeleteDdp_sgd_options(c)
	if err := low.Ddp_sgd_options_init(c, low.SizeofSGDOptions); err != nil {
		return nil, err
	}
	c.SetRate(or(options.Rate, c.GetRate()))
	c.SetMomentum(options.Momentum)
	c.SetDampening(options.Dampening)
	c.SetWeight_decay(options.WeightDecay)
	c.SetNesterov(flag(options.Nesterov))
	shared, err := options.StepOptions.fill()
	if err != nil {
		return nil, err
	}
	defer low.DeleteDdp_optimizer_options(shared)
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

// DefaultAdamOptions are what NewAdam uses when it gets nil: AdamW.
func DefaultAdamOptions() *AdamOptions {
	c := low.NewDdp_adam_options()
	defer low.DeleteDdp_adam_options(c)
	_ = low.Ddp_adam_options_init(c, low.SizeofAdamOptions)
	return &AdamOptions{Rate: c.GetRate(), Beta1: c.GetBeta1(), Beta2: c.GetBeta2(), Epsilon: c.GetEpsilon(), WeightDecay: c.GetWeight_decay(),
		Decoupled: c.GetDecoupled() != 0}
}

// NewAdam makes an optimizer for all parameters of the model; options may be nil.
func NewAdam(model *Model, options *AdamOptions) (*Optimizer, error) {
	if options == nil {
		options = DefaultAdamOptions()
	}
	c := low.NewDdp_adam_options()
	defer low.DeleteDdp_adam_options(c)
	if err := low.Ddp_adam_options_init(c, low.SizeofAdamOptions); err != nil {
		return nil, err
	}
	c.SetRate(or(options.Rate, c.GetRate()))
	c.SetBeta1(or(options.Beta1, c.GetBeta1()))
	c.SetBeta2(or(options.Beta2, c.GetBeta2()))
	c.SetEpsilon(or(options.Epsilon, c.GetEpsilon()))
	c.SetWeight_decay(options.WeightDecay)
	c.SetDecoupled(flag(options.Decoupled))
	shared, err := options.StepOptions.fill()
	if err != nil {
		return nil, err
	}
	defer low.DeleteDdp_optimizer_options(shared)
	return newOptimizer(model, func(out *uintptr) error { return low.Ddp_optimizer_create_adam(model.id(), c, shared, out) })
}
