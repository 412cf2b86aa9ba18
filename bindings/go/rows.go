// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"fmt"
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// AllReduceRows reduces rows of a table, of which every rank has some: the gradient of an embedding, without the rows that nobody touched.
// Values holds one row of the given width for each index. All ranks get the union of the indices, in rising order, and the sum or
// average of each row, a rank without it counting as zero. Collective.
func AllReduceRows[T Element](g *Group, indices []int64, values []T, width int, op Op) ([]int64, []T, error) {
	defer runtime.KeepAlive(g)
	if width < 1 || len(values) != len(indices)*width {
		return nil, nil, failure(InvalidArgument, fmt.Sprintf("%d rows of %d elements need %d values, not %d", len(indices), width,
			len(indices)*width, len(values)))
	}
	var count int64
	err := lending(func(t ...low.Ddp_tensor) error {
		return low.Ddp_group_all_reduce_rows(g.id(), t[0], t[1], int32(op), &count, g.queue())
	}, Of(indices), Of(values, len(indices), width))
	if err != nil {
		return nil, nil, err
	}
	union, rows := make([]int64, count), make([]T, int(count)*width)
	err = lending(func(t ...low.Ddp_tensor) error { return low.Ddp_group_get_rows(g.id(), t[0], t[1]) },
		Of(union), Of(rows, int(count), width))
	return union, rows, err
}
