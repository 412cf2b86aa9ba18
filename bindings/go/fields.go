// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"math"
	"time"
)

// Zero is a real 0 in a field of options where 0 means the default, which is a learning rate, for example.
const Zero = math.SmallestNonzeroFloat64

// Never is a timeout that does not come.
const Never time.Duration = -1

// field ties a field of options to C's. Each is declared once, by the fields method of its options: DefaultX reads them all from what C's init
// wrote, and a call writes them all over it.
type field struct {
	read  func() // from C
	write func() // to C
}

func readFields(fields []field) {
	for _, f := range fields {
		f.read()
	}
}

func writeFields(fields []field) {
	for _, f := range fields {
		f.write()
	}
}

type integer interface{ ~int | ~int32 | ~int64 }

// number is a field in which 0 is itself.
func number[G, C integer](value *G, get func() C, set func(C)) field {
	return field{func() { *value = G(get()) }, func() { set(C(*value)) }}
}

// count is a field in which 0 means the default.
func count[G, C integer](value *G, get func() C, set func(C)) field {
	return field{func() { *value = G(get()) }, func() {
		if *value != 0 {
			set(C(*value))
		}
	}}
}

// fraction is a field in which 0 is itself.
func fraction(value *float64, get func() float64, set func(float64)) field {
	return field{func() { *value = get() }, func() { set(*value) }}
}

// setting is a field in which 0 means the default, and Zero 0.
func setting(value *float64, get func() float64, set func(float64)) field {
	return field{func() { *value = get() }, func() { set(or(*value, get())) }}
}

// or is the value of a field whose zero value means the default.
func or(value, standard float64) float64 {
	switch value {
	case 0:
		return standard
	case Zero:
		return 0
	}
	return value
}

func positive[T int | int64](value, standard T) T {
	if value == 0 {
		return standard
	}
	return value
}

func truth(value *bool, get func() int32, set func(int32)) field {
	return field{func() { *value = get() != 0 }, func() { set(flag(*value)) }}
}

// untruth is a field that says the opposite of C's.
func untruth(value *bool, get func() int32, set func(int32)) field {
	return field{func() { *value = get() == 0 }, func() { set(flag(!*value)) }}
}

// duration is a field in which 0 means the default.
func duration(value *time.Duration, get func() int64, set func(int64)) field {
	return field{func() { *value = milliseconds(get()) }, func() { set(positive(wholeMilliseconds(*value), get())) }}
}

func milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

// wholeMilliseconds rounds up: less than one is not none.
func wholeMilliseconds(d time.Duration) int64 {
	if d > 0 {
		d += time.Millisecond - 1
	} else if d < 0 {
		return -1
	}
	return d.Milliseconds()
}
