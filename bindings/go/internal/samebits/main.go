// Command samebits is the Go port of tests/bindings/same_bits.c; tests/bindings/README.md describes the program.
//
//	ddprun -n 2 go run ./internal/samebits
//
// Products are rounded by an explicit float32(...): without it Go may fuse a multiplication and an addition.
package main

import (
	"fmt"
	"log"
	"math"

	ddp "github.com/libddp/libddp/bindings/go"
)

const inputs, hidden, outputs, samples, batch, epochs = 8, 16, 4, 96, 8, 10

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func some[T any](value T, err error) T {
	must(err)
	return value
}

type numbers uint32

// next is from -1 to below 1, exact in float32.
func (n *numbers) next() float32 {
	*n = *n*1664525 + 1013904223
	return (float32(*n>>16) - 32768) / 32768
}

type network struct {
	w1, b1, w2, b2                 []float32
	w1Grad, b1Grad, w2Grad, b2Grad []float32
	x                              [samples][inputs]float32
	t                              [samples][outputs]float32
}

func start(rank int) *network {
	net := &network{w1: make([]float32, hidden*inputs), b1: make([]float32, hidden), w2: make([]float32, outputs*hidden),
		b2: make([]float32, outputs), w1Grad: make([]float32, hidden*inputs), w2Grad: make([]float32, outputs*hidden)}
	state := numbers(1)
	for s := range net.x {
		for i := range net.x[s] {
			net.x[s][i] = state.next()
		}
		for o := range net.t[s] {
			net.t[s][o] = state.next() * 0.5
		}
	}
	state = numbers(7 + rank) // rank 0's weights reach everybody at Commit
	for i := range net.w1 {
		net.w1[i] = state.next() * 0.5
	}
	for i := range net.w2 {
		net.w2[i] = state.next() * 0.5
	}
	return net
}

// forward gives the hidden values and the gradient of the outputs, and the squared error.
func (net *network) forward(sample int64, scale float32) (h [hidden]float32, d [outputs]float32, loss float64) {
	for i := range h {
		h[i] = net.b1[i]
		for j, x := range net.x[sample] {
			h[i] = h[i] + float32(net.w1[i*inputs+j]*x)
		}
		if h[i] < 0 {
			h[i] = 0
		}
	}
	for o := range d {
		y := net.b2[o]
		for i := range h {
			y = y + float32(net.w2[o*hidden+i]*h[i])
		}
		miss := y - net.t[sample][o]
		loss = loss + float64(float64(miss)*float64(miss))
		d[o] = float32(miss * scale)
	}
	return h, d, loss
}

// learn is one sample, forward and backward: adds to the gradients, returns the squared error.
func (net *network) learn(sample int64, scale float32) float64 {
	h, d, loss := net.forward(sample, scale)
	for o := range d {
		net.b2Grad[o] += d[o]
		for i := range h {
			net.w2Grad[o*hidden+i] += float32(d[o] * h[i])
		}
	}
	for i := range h {
		back := float32(0)
		for o := range d {
			back = back + float32(net.w2[o*hidden+i]*d[o])
		}
		if !(h[i] > 0) {
			back = 0
		}
		net.b1Grad[i] += back
		for j, x := range net.x[sample] {
			net.w1Grad[i*inputs+j] += float32(back * x)
		}
	}
	return loss
}

func (net *network) lend(group *ddp.Group) *ddp.Model {
	options := ddp.DefaultModelOptions()
	options.FirstBucketBytes, options.BucketBytes = 256, 512
	model := some(ddp.NewModel(group, options))
	some(model.AddParameterWithGrad("w1", ddp.Of(net.w1, hidden, inputs), ddp.Of(net.w1Grad, hidden, inputs)))
	b1 := some(model.AddParameter("b1", ddp.Of(net.b1)))
	some(model.AddParameterWithGrad("w2", ddp.Of(net.w2, outputs, hidden), ddp.Of(net.w2Grad, outputs, hidden)))
	b2 := some(model.AddParameter("b2", ddp.Of(net.b2)))
	must(model.Commit())
	net.b1Grad, net.b2Grad = some(ddp.Grad[float32](model, b1)), some(ddp.Grad[float32](model, b2))
	return model
}

// step is one step in two passes, of which only the second communicates.
func (net *network) step(model *ddp.Model, sgd *ddp.Optimizer, ema *ddp.EMA, chosen []int64) float64 {
	must(model.ZeroGrad())
	scale, half := 1/float32(len(chosen)), len(chosen)/2
	loss := 0.0
	for part, kind := range []ddp.PassKind{ddp.Accumulate, ddp.Reduce} {
		pass := some(model.Backward(kind))
		samples := chosen[:half]
		if part == 1 {
			samples = chosen[half:]
		}
		for _, sample := range samples {
			loss = loss + net.learn(sample, scale)
		}
		for index := 3; index >= 0; index-- {
			must(pass.Ready(index))
		}
		must(pass.End(nil))
	}
	if norm := some(model.GradNorm(2)); norm > 0.5 {
		must(model.ScaleGrad(0.5 / norm))
	}
	must(sgd.Step())
	must(ema.Update())
	return loss
}

func (net *network) train(group *ddp.Group, model *ddp.Model, sgd *ddp.Optimizer, ema *ddp.EMA) float64 {
	sampler := ddp.NewSampler(group, samples)
	sampler.Seed = 3
	sums := make([]float64, 2)
	for epoch := int64(0); epoch < epochs; epoch++ {
		sums[0], sums[1] = 0, 0
		for share := some(sampler.Indices(epoch)); len(share) > 0; {
			count := len(share)
			if count > batch {
				count = batch
			}
			sums[0] = sums[0] + net.step(model, sgd, ema, share[:count])
			sums[1] = sums[1] + float64(count)
			share = share[count:]
		}
		must(group.ReduceMetrics(sums, ddp.Sum))
	}
	return sums[0] / sums[1]
}

func main() {
	group := some(ddp.NewGroup("", nil))
	net := start(group.Rank())
	model := net.lend(group)
	sgd := some(ddp.NewSGD(model, &ddp.SGDOptions{Rate: 0.0625, Momentum: 0.875}))
	ema := some(ddp.NewEMA(model, 0.75))
	loss := net.train(group, model, sgd, ema)
	parameters := some(model.Hash())
	must(ema.Swap(0))
	averages := some(model.Hash())
	must(ema.Swap(0))
	fmt.Printf("rank %d of %d: parameters %016x averages %016x loss %016x\n", group.Rank(), group.Size(), parameters, averages, math.Float64bits(loss))
	must(group.Barrier())
	ema.Close()
	sgd.Close()
	model.Close()
	group.Close()
}
