// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"errors"
	"fmt"
	"time"
)

// Store is a rendezvous of the caller's own: MPI, Redis, Kubernetes, a map in a test. It is used inside NewGroup alone, on the
// goroutine that called it.
type Store interface {
	// Set stores a value under a key, for other ranks.
	Set(key string, value []byte) error
	// Get fetches a value and waits for it; after the timeout it returns TimedOut.
	Get(key string, timeout time.Duration) ([]byte, error)
}

type storeState struct {
	guard
	store Store
}

func (s *storeState) Set(key string, value []byte) int32 {
	return flag(s.run(func() error { return s.store.Set(key, value) }))
}

func (s *storeState) Get(key string, capacity int, timeoutMs int64) (value []byte, status int32) {
	late := false
	failed := s.run(func() error {
		found, err := s.store.Get(key, milliseconds(timeoutMs))
		if errors.Is(err, TimedOut) {
			late = true
			return nil
		}
		if err == nil && len(found) > capacity {
			err = fmt.Errorf("the value of %q has %d bytes, at most %d are expected", key, len(found), capacity)
		}
		value = found
		return err
	})
	switch {
	case late:
		return nil, 1
	case failed:
		return nil, 2
	}
	return value, 0
}
