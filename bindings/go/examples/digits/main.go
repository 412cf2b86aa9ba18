// SPDX-License-Identifier: Apache-2.0

// Command digits trains a network on handwritten digits, on any number of ranks: examples/02_train.c in Go.
//
//	ddprun -n 2 go run ./examples/digits
//
// A perceptron with two hidden layers (64-128-64-10) reads 8x8 pixels and names the digit. Read main first, then step: these two
// are what a program of your own needs. The global batch has 64 samples whatever the number of ranks.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"

	ddp "github.com/libddp/libddp/bindings/go"
)

const globalBatch = 64

// lend gives the parameters to libddp, in the order of the forward computation; their gradients are libddp's.
func (net network) lend(group *ddp.Group) (*ddp.Model, error) {
	options := ddp.DefaultModelOptions()
	options.FirstBucketBytes, options.BucketBytes = 4096, 32768 // this network is tiny; real ones are well served by the defaults
	model, err := ddp.NewModel(group, options)
	if err != nil {
		return nil, err
	}
	for i, l := range net {
		if l.weightIndex, err = model.AddParameter(fmt.Sprintf("layer%d.weight", i+1), ddp.Of(l.weight, l.out, l.in)); err != nil {
			return nil, err
		}
		if l.biasIndex, err = model.AddParameter(fmt.Sprintf("layer%d.bias", i+1), ddp.Of(l.bias)); err != nil {
			return nil, err
		}
	}
	if err := model.Commit(); err != nil { // afterwards everybody has rank 0's weights
		return nil, err
	}
	for _, l := range net {
		if l.weightGrad, err = ddp.Grad[float32](model, l.weightIndex); err != nil {
			return nil, err
		}
		if l.biasGrad, err = ddp.Grad[float32](model, l.biasIndex); err != nil {
			return nil, err
		}
	}
	return model, nil
}

// step learns from a batch of this rank's and adds the loss and the number of right answers to sums.
func (net network) step(model *ddp.Model, optimizer *ddp.Optimizer, train samples, chosen []int64, sums []float64) error {
	for b, sample := range chosen {
		output := net.forward(train.pixels[sample], b)
		sums[0] += lossOf(output, train.labels[sample], net[len(net)-1].delta[b])
		if guessOf(output) == train.labels[sample] {
			sums[1]++
		}
	}
	if err := net.backward(model, len(chosen)); err != nil {
		return err
	}
	return optimizer.Step() // the gradients are the same everywhere, so the step is
}

// backward computes the gradients from the last layer to the first, while libddp sends those that are complete.
func (net network) backward(model *ddp.Model, batch int) (err error) {
	if err := model.ZeroGrad(); err != nil {
		return err
	}
	pass, err := model.Backward(ddp.Reduce)
	if err != nil {
		return err
	}
	defer pass.End(&err)
	for i := len(net) - 1; i >= 0; i-- {
		net[i].gradients(batch)
		if err := pass.Ready(net[i].biasIndex); err != nil {
			return err
		}
		if err := pass.Ready(net[i].weightIndex); err != nil {
			return err
		}
		if i > 0 {
			net[i].passDown(net[i-1], batch)
		}
	}
	return nil
}

// rateAt is a short linear warm-up, then down along a cosine.
func rateAt(step, steps int64) float64 {
	const top, warmUp = 0.004, 50
	if step < warmUp {
		return top * float64(step+1) / warmUp
	}
	return 0.02*top + 0.98*top*0.5*(1+math.Cos(math.Pi*float64(step)/float64(steps)))
}

// epoch goes through this rank's share of the training set once.
func (net network) epoch(state *ddp.State, group *ddp.Group, train samples, epochs int64, sums []float64) error {
	share, err := ddp.NewSampler(group, len(train.labels)).Indices(state.Epoch)
	if err != nil {
		return err
	}
	batch := globalBatch / group.Size()
	steps := int64((len(share) + batch - 1) / batch)
	for len(share) > 0 {
		count := len(share)
		if count > batch {
			count = batch
		}
		if err := state.Optimizer.SetRate(rateAt(state.Step, epochs*steps)); err != nil {
			return err
		}
		if err := net.step(state.Model, state.Optimizer, train, share[:count], sums); err != nil {
			return err
		}
		sums[2] += float64(count)
		share = share[count:]
		state.Step++
	}
	state.Epoch++
	return nil
}

// test lets each rank test every size-th sample.
func (net network) test(test samples, rank, size int, sums []float64) {
	for i := rank; i < len(test.labels); i += size {
		if guessOf(net.forward(test.pixels[i], 0)) == test.labels[i] {
			sums[0]++
		}
		sums[1]++
	}
}

func run(data, checkpoint string, epochs int64, resume bool) error {
	train, test, err := loadDigits(data)
	if err != nil {
		return err
	}
	group, err := ddp.NewGroup("", nil) // rank and size come from the launcher; started alone, the group has one rank
	if err != nil {
		return err
	}
	defer group.Close()
	net := newNetwork(64, 128, 64, 10)
	model, err := net.lend(group)
	if err != nil {
		return err
	}
	defer model.Close()
	optimizer, err := ddp.NewAdam(model, nil)
	if err != nil {
		return err
	}
	defer optimizer.Close()
	state := &ddp.State{Model: model, Optimizer: optimizer}
	if resume {
		if err := state.LoadFile(checkpoint); err != nil {
			return err
		}
	}
	if group.Rank() == 0 {
		fmt.Printf("%d ranks, %d digits to learn, %d to test\n", group.Size(), len(train.labels), len(test.labels))
	}
	accuracy := 0.0
	for state.Epoch < epochs {
		sums := make([]float64, 5) // loss, right, seen; right and seen in the test
		if err := net.epoch(state, group, train, epochs, sums); err != nil {
			return err
		}
		net.test(test, group.Rank(), group.Size(), sums[3:])
		if err := group.ReduceMetrics(sums, ddp.Sum); err != nil { // sum first, divide afterwards
			return err
		}
		accuracy = 100 * sums[3] / sums[4]
		if group.Rank() == 0 {
			fmt.Printf("epoch %2d  loss %.4f  train %6.2f %%  test %6.2f %%\n", state.Epoch, sums[0]/sums[2], 100*sums[1]/sums[2], accuracy)
		}
	}
	if err := state.SaveFile(checkpoint); err != nil { // every rank calls, rank 0 writes
		return err
	}
	if err := model.CheckReplicas(); err != nil { // are all weights the same on all ranks?
		return err
	}
	if group.Rank() == 0 {
		fmt.Printf("all equal\ntest accuracy %.2f %%; checkpoint: %s\n", accuracy, checkpoint)
	}
	return nil
}

func main() {
	data := flag.String("data", "../../examples/data/digits.csv", "the digits")
	checkpoint := flag.String("checkpoint", "digits.safetensors", "where to save")
	epochs := flag.Int64("epochs", 20, "how often to go through the data")
	resume := flag.Bool("resume", false, "continue from the checkpoint, on any number of ranks")
	flag.Parse()
	if err := run(*data, *checkpoint, *epochs, *resume); err != nil {
		log.Fatal(err)
	}
}
