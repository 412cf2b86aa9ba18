// SPDX-License-Identifier: Apache-2.0

package ddp

import "context"

// cancelled is a context that has ended.
func cancelled() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx, func() {}
}
