// SPDX-License-Identifier: Apache-2.0

package ddp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"math"

	ddp "github.com/libddp/libddp/bindings/go"
)

// One step of a training, on however many ranks the launcher started.
func Example() {
	group, err := ddp.NewGroup("", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	w, grad := []float32{1}, []float32{0}
	model, _ := ddp.NewModel(group, nil)
	defer model.Close()
	index, _ := model.AddParameterWithGrad("w", ddp.Of(w), ddp.Of(grad))
	if err := model.Commit(); err != nil { // rank 0's values go to everybody
		log.Fatal(err)
	}
	sgd, _ := ddp.NewSGD(model, &ddp.SGDOptions{Rate: 0.5})
	pass, _ := model.Backward(ddp.Reduce)
	grad[0] = 0.5
	_ = pass.Ready(index)                 // from here on libddp sends it
	if err := pass.End(nil); err != nil { // now it is the mean over all ranks
		log.Fatal(err)
	}
	if err := sgd.Step(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(w[0])
	// Output: 0.75
}

// A context ends what waits: the meeting, and every call on the group afterwards.
func ExampleNewGroupContext() {
	ctx, cancel := context.WithCancel(context.Background())
	group, err := ddp.NewGroupContext(ctx, "", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	cancel() // as a signal would
	for err == nil {
		err = group.Barrier()
	}
	fmt.Println(errors.Is(err, context.Canceled), errors.Is(err, ddp.Aborted))
	// Output: true true
}

// The first start of a program finds no checkpoint, a later one goes on from the newest.
func ExampleState_LoadLatest() {
	group, err := ddp.NewGroup("", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	model, _ := ddp.NewModel(group, nil)
	defer model.Close()
	_, _ = model.AddParameter("w", ddp.Of([]float32{1}))
	err = (&ddp.State{Model: model}).LoadLatest("checkpoints-of-nobody")
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("from the beginning")
	}
	// Output: from the beginning
}

// One rank saves alone, and the others go on. SaveFile, which all ranks call, writes whole files or none.
func ExampleState_SaveLocal() {
	group, err := ddp.NewGroup("", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	model, _ := ddp.NewModel(group, nil)
	defer model.Close()
	_, _ = model.AddParameter("w", ddp.Of([]float32{1}))
	if err := model.Commit(); err != nil {
		log.Fatal(err)
	}
	if group.Rank() == 0 {
		var file bytes.Buffer
		if err := (&ddp.State{Model: model}).SaveLocal(&file); err != nil {
			log.Fatal(err)
		}
		fmt.Println(bytes.Contains(file.Bytes(), []byte(`"w":{"dtype":"F32","shape":[1]`)))
	}
	// Output: true
}

// A rule of the program: the gradient's sign, whatever its size.
func ExampleNewCustom() {
	group, err := ddp.NewGroup("", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	w, grad := []float32{1, 1}, []float32{0.25, -4}
	model, _ := ddp.NewModel(group, nil)
	defer model.Close()
	index, _ := model.AddParameterWithGrad("w", ddp.Of(w), ddp.Of(grad))
	if err := model.Commit(); err != nil {
		log.Fatal(err)
	}
	rule, err := ddp.NewCustom(model, &ddp.CustomOptions{Rate: 0.5}, func(slice ddp.Slice) error {
		value, _ := ddp.Values[float32](slice.Value)
		gradient, _ := ddp.Values[float32](slice.Grad)
		for i := range value {
			value[i] -= float32(math.Copysign(slice.Rate, float64(gradient[i])))
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	defer rule.Close()
	pass, _ := model.Backward(ddp.Reduce)
	_ = pass.Ready(index)
	if err := pass.End(nil); err != nil {
		log.Fatal(err)
	}
	if err := rule.Step(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(w)
	// Output: [0.5 1.5]
}

// Which samples are this rank's.
func ExampleSampler() {
	sampler := ddp.Sampler{DatasetSize: 8, Rank: 1, Size: 2, InOrder: true}
	indices, err := sampler.Indices(0)
	fmt.Println(indices, err)
	// Output: [1 3 5 7] <nil>
}

// Sum first, and divide afterwards: with unequal numbers of samples a mean of means is wrong.
func ExampleGroup_ReduceMetrics() {
	group, err := ddp.NewGroup("", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	sums := []float64{12, 48} // of this rank: loss, samples
	if err := group.ReduceMetrics(sums, ddp.Sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sums[0] / sums[1])
	// Output: 0.25
}
