# SPDX-License-Identifier: Apache-2.0
# Stands in for Lux where that is not installed: the functions that its DistributedUtils asks of a back end, called as Lux 1 calls them.
module Lux

abstract type AbstractLuxDistributedBackend end

module DistributedUtils
const CPU = "a device"
avg() = nothing
function local_rank end
function total_workers end
function bcast_impl! end
function allreduce_impl! end
function reduce_impl! end
# As Lux 1 does: arrays of numbers as they are, other values as a vector of one, what has references not at all.
synchronize!!(backend, ps::NamedTuple{names}; root::Int = 0) where {names} = NamedTuple{names}(map(x -> synchronize!!(backend, x; root = root), Tuple(ps)))
synchronize!!(backend, ps::AbstractArray{T}; root::Int = 0) where {T} = isbitstype(T) ? bcast!(backend, ps; root = root) : map(x -> synchronize!!(backend, x; root = root), ps)
synchronize!!(backend, ps::T; root::Int = 0) where {T} = isbitstype(T) ? bcast!(backend, [ps]; root = root)[] : ps
bcast!(backend, a...; root::Int = 0) = (bcast_impl!(backend, a..., CPU; root = root); last(a))
allreduce!(backend, a, op) = allreduce_impl!(backend, a, op, CPU)
allreduce!(backend, from, to, op) = allreduce_impl!(backend, from, to, op, CPU)
reduce!(backend, a, op; root::Int = 0) = reduce_impl!(backend, a, op, CPU; root = root)
reduce!(backend, from, to, op; root::Int = 0) = reduce_impl!(backend, from, to, op, CPU; root = root)
end

end
