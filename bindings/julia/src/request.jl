# SPDX-License-Identifier: Apache-2.0
# Requests: collectives and messages that return at once, and end by themselves.

"""
    Request

A call that was posted: `request = post_allreduce!(group, a)`. Until it has ended its arrays belong to it. `wait(request)` and
`fetch(request)` let other tasks run meanwhile; `isdone(request)` never waits. All ranks post the same collectives in the same order, whatever
else they call meanwhile. The first one of a group waits for all ranks, and is posted while no pass is open, or the group is made with
`requests = 1`. What is forgotten is closed by the collector.
"""
mutable struct Request
    handle::Ptr{Low.ddp_request}
    group::Group
    arrays::Tuple # what it uses
    result::Any
    Request(handle, group, arrays, result) = finalizer(close, new(handle, group, arrays, result))
end

"""
    close(request)

Forget a request that has ended. A receive for which nothing has come is withdrawn; any other request is waited for.
"""
function Base.close(request::Request)
    handle, request.handle = request.handle, Ptr{Low.ddp_request}(C_NULL)
    Low.ddp_request_destroy(handle)
    return nothing
end

"""Has it ended well? Never waits. Throws the error that it has ended with."""
function isdone(request::Request)
    done = Ref{Int32}(0)
    check(Low.ddp_request_test(request.handle, done))
    return done[] != 0
end

"""
    wait(request; timeout = nothing)

Wait until it has ended; after `timeout` seconds gives `false`, and the request stays open. Throws the error that it has ended with. Other tasks
run meanwhile.
"""
function Base.wait(request::Request; timeout::Union{Real,Nothing} = nothing)
    stop = timeout === nothing ? Inf : time() + timeout
    while !isdone(request)
        time() < stop || return false
        done = Ref{Int32}(0)
        check(Low.ddp_request_wait(request.handle, 1, done)) # a millisecond; then the other tasks
        yield()
    end
    return true
end

"""Wait until it has ended, and give what the blocking call gives: of a receive the rank that sent."""
function Base.fetch(request::Request)
    wait(request)
    return request.result === nothing ? Int(Low.ddp_request_get_source(request.handle)) : request.result
end

"""
    wait_any(requests; timeout = nothing)

Wait until one of the requests has ended, and give its place, from 1; after `timeout` seconds `nothing`. Throws the error of that request.
"""
function wait_any(requests; timeout::Union{Real,Nothing} = nothing)
    ids = Int64[Low.ddp_request_get_id(request.handle) for request in requests]
    stop = timeout === nothing ? Inf : time() + timeout
    index = Ref{Int32}(-1)
    GC.@preserve requests while true
        check(Low.ddp_request_wait_any(ids, length(ids), 1, index))
        index[] < 0 || return Int(index[]) + 1
        time() < stop || return nothing
        yield()
    end
end

function post(call, group::Group, arrays, result)
    handle = Ref{Ptr{Low.ddp_request}}(C_NULL)
    GC.@preserve arrays check(call(handle))
    return Request(handle[], group, arrays, result)
end

"""Post `barrier`."""
post_barrier(group::Group) = post(out -> Low.ddp_group_post_barrier(group.handle, out), group, (), true)

"""Post `allreduce!`."""
post_allreduce!(group::Group, a::AbstractArray, op = +) =
    post(out -> Low.ddp_group_post_all_reduce(group.handle, Ref(describe(a)), reduction(op), out, group.stream), group, (a,), a)

"""Post `allgather!`."""
post_allgather!(group::Group, output::AbstractArray, input::AbstractArray) = post(group, (output, input), output) do out
    Low.ddp_group_post_all_gather(group.handle, Ref(describe_bits(input)), Ref(describe_bits(output)), out, group.stream)
end

"""Post `reducescatter!`."""
post_reducescatter!(group::Group, output::AbstractArray, input::AbstractArray, op = +) = post(group, (output, input), output) do out
    Low.ddp_group_post_reduce_scatter(group.handle, Ref(describe(input)), Ref(describe(output)), reduction(op), out, group.stream)
end

"""Post `bcast!`."""
post_bcast!(group::Group, a::AbstractArray; root::Integer = 0) =
    post(out -> Low.ddp_group_post_broadcast(group.handle, Ref(describe_bits(a)), root, out, group.stream), group, (a,), a)

"""Post `reduce!`."""
post_reduce!(group::Group, a::AbstractArray, op = +; root::Integer = 0) =
    post(out -> Low.ddp_group_post_reduce(group.handle, Ref(describe(a)), reduction(op), root, out, group.stream), group, (a,), a)

"""Post `gather!`."""
post_gather!(group::Group, output, input::AbstractArray; root::Integer = 0) = post(group, (output, input), something(output, true)) do out
    Low.ddp_group_post_gather(group.handle, Ref(describe_bits(input)), described(group, output, root), root, out, group.stream)
end

"""Post `scatter!`."""
post_scatter!(group::Group, output::AbstractArray, input; root::Integer = 0) = post(group, (output, input), output) do out
    Low.ddp_group_post_scatter(group.handle, described(group, input, root), Ref(describe_bits(output)), root, out, group.stream)
end

"""Post `alltoall!`."""
function post_alltoall!(group::Group, output::AbstractArray, input::AbstractArray; given = nothing, taken = nothing)
    mine, theirs = counts(group, given), counts(group, taken)
    return post(group, (output, input, mine, theirs), output) do out
        Low.ddp_group_post_all_to_all(group.handle, Ref(describe_bits(input)), Ref(describe_bits(output)), pointer_of(mine), pointer_of(theirs), out, group.stream)
    end
end

"""Post `allgather!` with counts."""
function post_allgather!(group::Group, output::AbstractArray, input::AbstractArray, each::AbstractVector{<:Integer})
    all = counts(group, each)
    return post(group, (output, input, all), output) do out
        Low.ddp_group_post_all_gather_counts(group.handle, Ref(describe_bits(input)), Ref(describe_bits(output)), pointer(all), out, group.stream)
    end
end

"""Post `send`. Also while a pass is open."""
post_send(group::Group, a::AbstractArray; to::Integer, tag::Integer = 0) =
    post(out -> Low.ddp_group_post_send(group.handle, Ref(describe_bits(a)), to, tag, out, group.stream), group, (a,), true)

"""Post `receive!`; `fetch` gives the rank that sent. Also while a pass is open."""
post_receive!(group::Group, a::AbstractArray; from::Integer = ANY_SOURCE, tag::Integer = 0) =
    post(out -> Low.ddp_group_post_receive(group.handle, Ref(describe_bits(a)), from, tag, out, group.stream), group, (a,), nothing)
