// SPDX-License-Identifier: Apache-2.0

package low

import (
	"strconv"
	"strings"
)

// Details are the numbers of an error.
type Details struct {
	Call, OtherCall           string
	BytesExpected, BytesGot   int64
	RankCount, ParameterCount int
	Ranks, Parameters         []int
}

// Fail makes the error for a status, its text and its numbers. Package ddp sets it before anything can fail.
var Fail func(status int32, text string, details Details) error

// result takes apart what low.i packed; "" is success.
func result(packed string) error {
	if packed == "" {
		return nil
	}
	word := func() string {
		var first string
		first, packed, _ = strings.Cut(packed, " ")
		if first == "-" {
			return ""
		}
		return first
	}
	number := func() int64 {
		found, _ := strconv.ParseInt(word(), 10, 64)
		return found
	}
	list := func() (found []int) {
		for _, each := range strings.FieldsFunc(word(), func(r rune) bool { return r == ',' }) {
			one, _ := strconv.Atoi(each)
			found = append(found, one)
		}
		return found
	}
	status := int32(number())
	details := Details{Call: word(), OtherCall: word(), BytesExpected: number(), BytesGot: number()}
	details.RankCount, details.Ranks = int(number()), list()
	details.ParameterCount, details.Parameters = int(number()), list()
	return Fail(status, packed, details)
}
