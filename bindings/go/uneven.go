// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// SetWeight says how much this rank's gradients count, from the next pass on: its number of samples. The result of a pass is then
// sum(weight*gradient) / sum(weight). Needs DivisorWeights. Before the first Ready of a pass.
func (m *Model) SetWeight(weight float64) error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_set_weight(m.id(), weight)
}

// SetLastPass says that this rank has no batch after the open or the next pass; every rank then finds it in PassReport.
func (m *Model) SetLastPass() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_set_last_pass(m.id())
}

// SkipBackward takes part in one Reduce pass without a batch: this rank contributes nothing and receives the result. Collective.
func (m *Model) SkipBackward() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_skip_backward(m.id(), m.stream)
}

// Join says that this rank is out of data: it answers the passes of the others until every rank has joined. Then all ranks hold the
// same state and go on together. Needs ModelOptions.UnevenInputs. Collective.
func (m *Model) Join() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_join(m.id(), m.stream)
}

// PassReport is who took part in a pass, the same on all ranks.
type PassReport struct {
	Contributors int     // ranks whose gradients counted
	Weight       float64 // sum of their weights
	Last         bool    // some rank has no batch for the next pass
	Absent       []int   // the ranks that did not contribute
}

// PassReport tells who took part in the last Reduce pass.
func (m *Model) PassReport() (PassReport, error) {
	defer runtime.KeepAlive(m)
	c := low.NewDdp_pass_report()
	defer low.DeleteDdp_pass_report(c)
	c.SetStruct_size(low.SizeofPassReport)
	err := low.Ddp_model_get_pass_report(m.id(), c)
	report := PassReport{Contributors: int(c.GetContributors()), Weight: c.GetWeight(), Last: c.GetLast() != 0}
	if absent := c.GetAbsent_count(); err == nil && absent > 0 {
		raw, found := make([]int32, absent), int32(0)
		if err = low.Ddp_model_get_absent(m.id(), &raw[0], absent, &found); err == nil {
			for _, rank := range raw {
				report.Absent = append(report.Absent, int(rank))
			}
		}
	}
	return report, err
}
