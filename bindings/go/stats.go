// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"
	"time"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Stats are numbers of a model's passes. Comm is the time from the start of a pass's first bucket to the end of its last;
// Exposed is the part of it that was not hidden behind computation.
type Stats struct {
	Parameters, Elements, Buckets          int64
	Passes, GradientBytes                  int64
	Backward, Comm, Exposed                time.Duration // of the last pass
	TotalBackward, TotalComm, TotalExposed time.Duration // of all passes
	Checks, Repairs                        int64         // by ModelOptions.CheckEvery
	SentBytes, TotalSentBytes              int64         // what this rank sent or copied for others: of the last pass, of all
}

// Waits are, by rank, how long this rank's program stood still because that one, or its data, came late, since the group was made or recovered.
// What computation hides is not counted. Summed over the ranks they tell who holds up the others.
func (g *Group) Waits() ([]time.Duration, error) {
	defer runtime.KeepAlive(g)
	var count int32
	if err := low.Ddp_group_get_waits(g.id(), nil, 0, &count); err != nil || count == 0 {
		return nil, err
	}
	raw := make([]float64, count)
	if err := low.Ddp_group_get_waits(g.id(), &raw[0], count, &count); err != nil {
		return nil, err
	}
	waits := make([]time.Duration, 0, len(raw))
	for _, each := range raw {
		waits = append(waits, seconds(each))
	}
	return waits, nil
}

// Stats gives the numbers of the last and of all passes.
func (m *Model) Stats() (Stats, error) {
	defer runtime.KeepAlive(m)
	c := low.NewDdp_model_stats()
	defer low.DeleteDdp_model_stats(c)
	c.SetStruct_size(low.SizeofModelStats)
	if err := low.Ddp_model_get_stats(m.id(), c); err != nil {
		return Stats{}, err
	}
	return Stats{
		Parameters: c.GetParameters(), Elements: c.GetElements(), Buckets: c.GetBuckets(), Passes: c.GetPasses(), GradientBytes: c.GetGradient_bytes(),
		Backward: time.Duration(c.GetBackward_ns()), Comm: time.Duration(c.GetComm_ns()), Exposed: time.Duration(c.GetExposed_ns()),
		TotalBackward: time.Duration(c.GetTotal_backward_ns()), TotalComm: time.Duration(c.GetTotal_comm_ns()),
		TotalExposed: time.Duration(c.GetTotal_exposed_ns()),
		Checks:       c.GetChecks(), Repairs: c.GetRepairs(), SentBytes: c.GetSent_bytes(), TotalSentBytes: c.GetTotal_sent_bytes(),
	}, nil
}
