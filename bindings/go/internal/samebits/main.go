// SPDX-License-Identifier: Apache-2.0

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
	"os"
	"strconv"

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

// work is the share of one part of a step, in two passes, of which only the second of the last part communicates.
func (net *network) work(model *ddp.Model, chosen []int64, last ddp.PassKind) float64 {
	scale, half := 1/float32(len(chosen)), len(chosen)/2
	loss := 0.0
	for i, kind := range []ddp.PassKind{ddp.Accumulate, last} {
		pass := some(model.Backward(kind))
		samples := chosen[:half]
		if i == 1 {
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
	return loss
}

func finishStep(model *ddp.Model, sgd *ddp.Optimizer, ema *ddp.EMA) {
	if norm := some(model.GradNorm(2)); norm > 0.5 {
		must(model.ScaleGrad(0.5 / norm))
	}
	must(sgd.Step())
	must(ema.Update())
}

func (net *network) train(group *ddp.Group, model *ddp.Model, sgd *ddp.Optimizer, ema *ddp.EMA) float64 {
	mine := some(group.Parts())
	sampler := &ddp.Sampler{DatasetSize: samples, Seed: 3, Size: mine.Total}
	share := some(sampler.Count())
	sums := make([]float64, 2*mine.Count)
	for epoch := int64(0); epoch < epochs; epoch++ {
		for i := range sums {
			sums[i] = 0
		}
		for first := 0; first < share; first += batch {
			chosen := make([]int64, min(batch, share-first))
			must(model.ZeroGrad())
			for i := 0; i < mine.Count; i++ {
				part := mine.First + i
				sampler.Rank = part
				must(sampler.Fill(epoch, first, chosen))
				sums[2*i] = sums[2*i] + net.work(model, chosen, mine.Kind(part))
				sums[2*i+1] = sums[2*i+1] + float64(len(chosen))
			}
			finishStep(model, sgd, ema)
		}
		some(group.ReducePartMetrics(sums, ddp.Sum))
	}
	return sums[0] / sums[1]
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func main() {
	options := ddp.DefaultGroupOptions()
	options.VirtualRanks, _ = strconv.Atoi(os.Getenv("SAME_BITS_PARTS"))
	group := some(ddp.NewGroup("", options))
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
