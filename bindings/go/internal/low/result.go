// SPDX-License-Identifier: Apache-2.0

package low

import (
	"strconv"
	"strings"
)

// Fail makes the error for a status and its text. Package ddp sets it before anything can fail.
var Fail func(status int32, text string) error

// result takes apart what low.i packed: "" is success, else "<status> <text>".
func result(packed string) error {
	if packed == "" {
		return nil
	}
	number, text, _ := strings.Cut(packed, " ")
	status, _ := strconv.Atoi(number)
	return Fail(int32(status), text)
}
