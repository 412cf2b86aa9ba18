// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// trainParts makes a step of the parts of this rank. A gradient depends on its part alone.
func trainParts(model *Model, grad []float32, parts Parts) error {
	for part := parts.First; part < parts.First+parts.Count; part++ {
		grad[0] = 1 / float32(3+part)
		if err := pass(model, parts.Kind(part)); err != nil {
			return err
		}
	}
	return nil
}

func TestPartsHaveTheSameBitsOnAnyNumberOfRanks(t *testing.T) {
	const total = 3
	inverse := func(number int) float32 { return 1 / float32(number) }
	wanted := (float32(inverse(3)+inverse(4)) + inverse(5)) / total
	for size := 1; size <= total; size++ {
		ranksWith(t, size, func(options *GroupOptions) { options.VirtualRanks = total }, func(group *Group) error {
			parts, err := group.Parts()
			if err != nil || parts.Total != total {
				return fmt.Errorf("%v %v", parts, err)
			}
			model, grad, err := single(group, nil)
			if err != nil {
				return err
			}
			defer model.Close()
			if err := trainParts(model, grad, parts); err != nil || grad[0] != wanted {
				return fmt.Errorf("%v %v, not %v", err, grad, wanted)
			}
			values := make([]float64, 2*parts.Count)
			for i := 0; i < parts.Count; i++ {
				values[2*i], values[2*i+1] = 1, float64(parts.First+i)
			}
			sums, err := group.ReducePartMetrics(values, Sum)
			if err != nil || !reflect.DeepEqual(sums, []float64{3, 3}) {
				return fmt.Errorf("%v %v", sums, err)
			}
			return nil
		})
	}
}

func TestPartsAreRefusedWhereTheyAreWrong(t *testing.T) {
	ranksWith(t, 1, func(options *GroupOptions) { options.VirtualRanks = 2 }, func(group *Group) error {
		if _, err := group.ReducePartMetrics(make([]float64, 3), Sum); err == nil || !strings.Contains(err.Error(), "2 parts") {
			return fmt.Errorf("three numbers for two parts: %v", err)
		}
		model, _, err := single(group, nil)
		if err != nil {
			return err
		}
		defer model.Close()
		if err := pass(model, Reduce); err == nil || !strings.Contains(err.Error(), "DDP_PASS_PART") {
			return fmt.Errorf("the first part is reduced: %v", err)
		}
		return nil
	})
	key, err := PartKey(1, 2, 3)
	check(t, err)
	if key != 7367606758917324626 {
		t.Fatal(key)
	}
	_, err = PartKey(1, -1, 0)
	is(t, err, InvalidArgument, "step is -1")
}
