# SPDX-License-Identifier: Apache-2.0
# libddp as a back end of Lux.DistributedUtils: the functions that Lux asks of one. See LibDDP.lux_backend.
module LibDDPLuxExt

using LibDDP, LibDDP.All
using Lux

const Utils = Lux.DistributedUtils

struct DDPBackend <: Lux.AbstractLuxDistributedBackend
    group::Group
end

LibDDP.lux_backend(group::Group) = DDPBackend(group)

# Lux sends what a state holds beside arrays as a vector of one element: numbers, truth values, Val. Of those the bits travel.
operation(op) = op === Utils.avg ? average : op

Utils.local_rank(backend::DDPBackend) = group_rank(backend.group)
Utils.total_workers(backend::DDPBackend) = group_size(backend.group)

function Utils.bcast_impl!(backend::DDPBackend, buffer, device; root::Integer = 0)
    bcast!(backend.group, buffer; root = root)
    return nothing
end

function Utils.bcast_impl!(backend::DDPBackend, from, to, device; root::Integer = 0)
    group_rank(backend.group) == root && copyto!(to, from)
    bcast!(backend.group, to; root = root)
    return nothing
end

function Utils.allreduce_impl!(backend::DDPBackend, buffer, op, device)
    allreduce!(backend.group, buffer, operation(op))
    return nothing
end

function Utils.allreduce_impl!(backend::DDPBackend, from, to, op, device)
    copyto!(to, from)
    allreduce!(backend.group, to, operation(op))
    return nothing
end

# The result on all ranks is more than root alone needs, and costs as much on shared memory. What others gave stays as it was.
function Utils.reduce_impl!(backend::DDPBackend, buffer, op, device; root::Integer = 0)
    result = allreduce!(backend.group, copy(buffer), operation(op))
    group_rank(backend.group) == root && copyto!(buffer, result)
    return nothing
end

function Utils.reduce_impl!(backend::DDPBackend, from, to, op, device; root::Integer = 0)
    result = allreduce!(backend.group, copy(from), operation(op))
    group_rank(backend.group) == root && copyto!(to, result)
    return nothing
end

end
