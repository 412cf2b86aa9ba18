# SPDX-License-Identifier: Apache-2.0
# The tests of the Go module under the race detector, and under the strict checks of what Go's pointers may be given to C.
. "$(dirname "${BASH_SOURCE[0]}")/go_support.sh"
if go version | grep -Eq 'go1\.(19|20)\b'; then
  GODEBUG=cgocheck=2 go test -count=1 -timeout 50s .
else
  GOEXPERIMENT=cgocheck2 go test -count=1 -timeout 50s .
fi
if [ "$(go env CGO_ENABLED)" = 1 ] && [ "$(go env GOARCH)" = amd64 ]; then
  go test -race -count=1 -timeout 50s .
fi
