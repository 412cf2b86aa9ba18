// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// StartTrace records what all ranks do and when, from here on, until StopTrace writes the file at path, which Perfetto opens. Rank 0's path
// counts. Of the events of this rank the newest capacity are kept; 0: 65,536. Collective.
func (g *Group) StartTrace(path string, capacity int64) error {
	defer runtime.KeepAlive(g)
	c := low.NewDdp_trace_options()
	defer low.DeleteDdp_trace_options(c)
	if err := low.Ddp_trace_options_init(c, low.SizeofTraceOptions); err != nil {
		return err
	}
	if capacity != 0 {
		c.SetCapacity(capacity)
	}
	return low.Ddp_group_start_trace(g.id(), path, c)
}

// LogMetric shows a number of the program, such as a loss, to those who watch the job: ddprun has the last value of each rank in its progress
// line, in --report and in --metrics. Any goroutine.
func (g *Group) LogMetric(name string, value float64) error {
	defer runtime.KeepAlive(g)
	return low.Ddp_group_log_metric(g.id(), name, value)
}

// StopTrace ends the trace; the file is there when it returns. Collective.
func (g *Group) StopTrace() error {
	defer runtime.KeepAlive(g)
	return low.Ddp_group_stop_trace(g.id())
}
