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
bcast!(backend, a...; root::Int = 0) = bcast_impl!(backend, a..., CPU; root = root)
allreduce!(backend, a, op) = allreduce_impl!(backend, a, op, CPU)
allreduce!(backend, from, to, op) = allreduce_impl!(backend, from, to, op, CPU)
reduce!(backend, a, op; root::Int = 0) = reduce_impl!(backend, a, op, CPU; root = root)
reduce!(backend, from, to, op; root::Int = 0) = reduce_impl!(backend, from, to, op, CPU; root = root)
end

end
