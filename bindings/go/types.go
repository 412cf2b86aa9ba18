// SPDX-License-Identifier: Apache-2.0

package ddp

import "github.com/libddp/libddp/bindings/go/internal/low"

// DType is the type of a tensor's elements.
type DType int32

// The element types.
const (
	F32  DType = 1
	F64  DType = 2
	F16  DType = 3
	BF16 DType = 4
	I32  DType = 5
	I64  DType = 6
	U8   DType = 7
	C64  DType = 8 // complex64
	C128 DType = 9 // complex128
)

// Device says where a tensor's memory is.
type Device int32

// The kinds of device.
const (
	CPU  Device = 1
	CUDA Device = 2
)

// Op says how the values of all ranks become one. Average is the sum divided by the number of ranks.
type Op int32

// The reductions.
const (
	Average Op = 0
	Sum     Op = 1
	Min     Op = 2
	Max     Op = 3
	Product Op = 4
)

// Backend says how the bytes of a group travel.
type Backend int32

// The backends. BackendAuto chooses: shared memory between ranks of one host, Gloo between hosts.
const (
	BackendAuto  Backend = 0
	BackendGloo  Backend = 1
	BackendNCCL  Backend = 2
	BackendShm   Backend = 3
	BackendLocal Backend = 4
)

// SumOrder says which leaf of the balanced tree of a sum each rank is.
type SumOrder int32

// The orders. ByRank: bits do not depend on which ranks share a host. ByHost: each host sends one partial sum, whatever its number of ranks.
const (
	ByRank SumOrder = 0
	ByHost SumOrder = 1
)

// Links says how data is sent between processes that share no memory.
type Links int32

// The links. LinksAuto: encrypted if the group has a token, except for connections to a loopback address.
const (
	LinksAuto      Links = 0
	LinksEncrypted Links = 1
	LinksPlain     Links = 2
)

// Version of the loaded library: major*1000000 + minor*1000 + patch.
func Version() int { return int(low.Ddp_version()) }

// ExperimentalVersion is the version of the experimental parts of the loaded library: it is another one where a part has changed.
func ExperimentalVersion() int { return int(low.Ddp_experimental_version()) }

// VersionString is the version of the loaded library as text, such as "0.1.0".
func VersionString() string { return low.Ddp_version_string() }

// BuildInfo is one line about the loaded library: version, compiler, instruction sets, modules.
func BuildInfo() string { return low.Ddp_build_info() }

func flag(on bool) int32 {
	if on {
		return 1
	}
	return 0
}
