// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"strconv"
)

// The arithmetic of a perceptron, written out: nothing here knows libddp.

type layer struct {
	in, out                int
	weight, bias           []float32 // weight[o*in+i]
	weightGrad, biasGrad   []float32 // libddp's
	weightIndex, biasIndex int
	value                  []float32   // outputs of the sample at hand
	delta, input           [][]float32 // for each sample of a batch
}

type network []*layer

// newNetwork has small random weights (He's initialisation). Ranks need not agree on them.
func newNetwork(widths ...int) network {
	net, state := network{}, uint64(1)
	for i := 0; i+1 < len(widths); i++ {
		l := &layer{in: widths[i], out: widths[i+1]}
		l.weight, l.bias, l.value = make([]float32, l.in*l.out), make([]float32, l.out), make([]float32, l.out)
		spread := float32(math.Sqrt(6 / float64(l.in)))
		for j := range l.weight {
			state = state*6364136223846793005 + 1442695040888963407
			l.weight[j] = spread * (float32(state>>40)/8388608 - 1)
		}
		for b := 0; b < globalBatch; b++ {
			l.delta, l.input = append(l.delta, make([]float32, l.out)), append(l.input, make([]float32, l.in))
		}
		net = append(net, l)
	}
	return net
}

// forward takes one sample through all layers and keeps the inputs of each layer in slot b.
func (net network) forward(pixels []float32, b int) []float32 {
	input := pixels
	for i, l := range net {
		copy(l.input[b], input)
		for o := range l.value {
			sum := l.bias[o]
			for j, x := range input {
				sum += l.weight[o*l.in+j] * x
			}
			if i < len(net)-1 && sum < 0 {
				sum = 0
			}
			l.value[o] = sum
		}
		input = l.value
	}
	return input
}

// gradients of one layer: the mean over this rank's samples. libddp then takes the mean over the ranks.
func (l *layer) gradients(batch int) {
	for b := 0; b < batch; b++ {
		for o := 0; o < l.out; o++ {
			delta := l.delta[b][o] / float32(batch)
			l.biasGrad[o] += delta
			row := l.weightGrad[o*l.in : (o+1)*l.in]
			for i, x := range l.input[b] {
				row[i] += delta * x
			}
		}
	}
}

// passDown tells the layer below what it must know: its outputs are our inputs, and ReLU lets through where these are positive.
func (l *layer) passDown(below *layer, batch int) {
	for b := 0; b < batch; b++ {
		for i := range below.delta[b] {
			sum := float32(0)
			if l.input[b][i] > 0 {
				for o, delta := range l.delta[b] {
					sum += l.weight[o*l.in+i] * delta
				}
			}
			below.delta[b][i] = sum
		}
	}
}

// lossOf is the cross-entropy of softmax; it writes the gradient with respect to the last layer's values.
func lossOf(value []float32, label int, delta []float32) float64 {
	top, sum := value[guessOf(value)], 0.0
	for _, v := range value {
		sum += math.Exp(float64(v - top))
	}
	for c, v := range value {
		delta[c] = float32(math.Exp(float64(v-top)) / sum)
	}
	delta[label]--
	return math.Log(sum) - float64(value[label]-top)
}

func guessOf(value []float32) int {
	best := 0
	for c, v := range value {
		if v > value[best] {
			best = c
		}
	}
	return best
}

type samples struct {
	pixels [][]float32
	labels []int
}

// loadDigits reads 64 pixels and a label from each line; every fifth line is for testing.
func loadDigits(path string) (train, test samples, err error) {
	file, err := os.Open(path)
	if err != nil {
		return train, test, err
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return train, test, err
	}
	for number, line := range lines {
		pixels := make([]float32, len(line)-1)
		for i := range pixels {
			value, err := strconv.ParseFloat(line[i], 32)
			if err != nil {
				return train, test, fmt.Errorf("%s, line %d: %w", path, number+1, err)
			}
			pixels[i] = float32(value) / 16
		}
		label, err := strconv.Atoi(line[len(line)-1])
		if err != nil || len(pixels) != 64 {
			return train, test, fmt.Errorf("%s, line %d: not 64 pixels and a label", path, number+1)
		}
		part := &train
		if number%5 == 0 {
			part = &test
		}
		part.pixels, part.labels = append(part.pixels, pixels), append(part.labels, label)
	}
	return train, test, nil
}
