# SPDX-License-Identifier: Apache-2.0
"""
    Group(rendezvous = "env://"; options...)
    Group(f, rendezvous = "env://"; options...)

Meet the other ranks. `env://` reads what ddprun, torchrun, Open MPI, MPICH, Slurm or Kubernetes set; others are `tcp://host:port`,
`file:///path`, `local://name` and `store://`. Options are the fields of `LibDDP.Low.ddp_group_options`: `rank`, `world_size`, `backend =
:gloo`, `timeout_ms`, and so on. `store` is an object with the functions `set(key, bytes)` and `get(key, timeout_ms)`, which returns bytes, or
`nothing` when the time is over. With a function, the group is closed when that returns. Collective.
"""
mutable struct Group
    handle::Ptr{Low.ddp_group}
    stream::Ptr{Cvoid}
    recovering::ReentrantLock # abort stays out of a recovery
end

Group(handle::Ptr, stream::Ptr) = Group(handle, stream, ReentrantLock())

function Group(rendezvous::AbstractString = "env://"; store = nothing, changes...)
    callback = Callback(store)
    own = Ref(Low.ddp_store(sizeof(Low.ddp_store), C_NULL, C_NULL, C_NULL))
    handle = Ref{Ptr{Low.ddp_group}}(C_NULL)
    GC.@preserve own begin
        pointer = store === nothing ? Ptr{Low.ddp_store}(C_NULL) : Base.unsafe_convert(Ptr{Low.ddp_store}, own)
        chosen = Ref(options(Low.ddp_group_options, Low.ddp_group_options_init; store = pointer, changes...))
        with_callback(callback) do user
            own[] = Low.ddp_store(sizeof(Low.ddp_store), store_set_fn(), store_get_fn(), user)
            Low.ddp_group_create(rendezvous, chosen, handle)
        end
    end
    return finalizer(close, Group(handle[], C_NULL))
end

function Group(f::Function, rendezvous::AbstractString = "env://"; changes...)
    group = Group(rendezvous; changes...)
    try
        return f(group)
    finally
        close(group)
    end
end

"""
    split(group, color, key = 0; options...)

Divide a group: ranks of one color (0 or more) become a group of their own, numbered by `key`, then by rank; with the color `nothing` this rank
gets `nothing`. Without options the new group has those of `group`. Collective.
"""
function Base.split(group::Group, color::Union{Integer,Nothing}, key::Integer = 0; changes...)
    chosen = isempty(changes) ? Ptr{Low.ddp_group_options}(C_NULL) : Ref(options(Low.ddp_group_options, Low.ddp_group_options_init; changes...))
    handle = Ref{Ptr{Low.ddp_group}}(C_NULL)
    check(Low.ddp_group_split(group.handle, color === nothing ? Low.DDP_NO_COLOR : color, key, chosen, handle))
    return handle[] == C_NULL ? nothing : finalizer(close, Group(handle[], C_NULL))
end

"""
    close(group)

Leave the group; pending work is dropped and the other ranks are told. At most 2 seconds, also when peers are dead. Models, optimizers and
averages are closed in the same way, in any order; what is forgotten is closed by the collector. Arrays of their memory stay.
"""
function Base.close(group::Group)
    handle, group.handle = group.handle, Ptr{Low.ddp_group}(C_NULL)
    Low.ddp_group_destroy(handle)
    return nothing
end

Base.isopen(group::Group) = group.handle != C_NULL

"""This rank's number, from 0; -1 after closing."""
group_rank(group::Group) = Int(Low.ddp_group_get_rank(group.handle))

"""The number of ranks; -1 after closing."""
group_size(group::Group) = Int(Low.ddp_group_get_size(group.handle))

"""Number of this group in this process, from 1, as in messages of the log; 0 after closing."""
group_number(group::Group) = Int(Low.ddp_group_get_number(group.handle))

"""What the group really uses: `:SHM`, `:GLOO`, `:NCCL`, `:LOCAL`, or `:AUTO` alone."""
function backend(group::Group)
    found = Low.ddp_group_get_backend(group.handle)
    for name in (:AUTO, :GLOO, :NCCL, :SHM, :LOCAL)
        enumerator(:backend, name) == found && return name
    end
    return Symbol(found)
end

"""By rank: seconds that this rank's program stood still because that one, or its data, came late, since the group was made or recovered."""
function waits(group::Group)
    count = Ref{Int32}(0)
    check(Low.ddp_group_get_waits(group.handle, C_NULL, 0, count))
    seconds = zeros(Float64, count[])
    check(Low.ddp_group_get_waits(group.handle, seconds, length(seconds), count))
    return seconds
end

"""
    log_metric(group, name, value)

Show a number of the program, such as a loss, to those who watch the job: ddprun has the last value of each rank in its progress line, in `--report`
and in `--metrics`. From any task or thread.
"""
log_metric(group::Group, name::AbstractString, value::Real) = check(Low.ddp_group_log_metric(group.handle, name, value))

"""Break the group on purpose: everything pending or later fails with `:ABORTED`, on all ranks. From any task or thread; during a recovery it waits for its end."""
abort(group::Group, reason::AbstractString) = lock(() -> check(Low.ddp_group_abort(group.handle, reason)), group.recovering)

"""`nothing`, or the error that broke the group."""
function group_error(group::Group)
    code = Low.ddp_group_status(group.handle)
    return code == Low.DDP_OK ? nothing : DDPError(code)
end

"""The CUDA stream, as a pointer, on which the arrays of later calls are ready."""
stream!(owner, stream::Ptr) = (owner.stream = Ptr{Cvoid}(stream); owner)

"""Return when all ranks have called."""
barrier(group::Group) = check(Low.ddp_group_barrier(group.handle))

"""
    allreduce!(group, a, op = +)

Reduce an array over all ranks, in place: with `+`, `average`, `min`, `max` or `*`. Every rank then holds the same bits.
"""
function allreduce!(group::Group, a::AbstractArray, op = +)
    GC.@preserve a check(Low.ddp_group_all_reduce(group.handle, Ref(describe(a)), reduction(op), group.stream))
    return a
end

"""
    allgather!(group, output, input)

Collect the inputs of all ranks; `output` has one more dimension, or is longer in the last one, by the number of ranks.
"""
function allgather!(group::Group, output::AbstractArray, input::AbstractArray)
    GC.@preserve output input check(Low.ddp_group_all_gather(group.handle, Ref(describe(input)), Ref(describe(output)), group.stream))
    return output
end

"""
    reducescatter!(group, output, input, op = +)

Reduce `input` over all ranks and keep the part of this rank.
"""
function reducescatter!(group::Group, output::AbstractArray, input::AbstractArray, op = +)
    GC.@preserve output input check(
        Low.ddp_group_reduce_scatter(group.handle, Ref(describe(input)), Ref(describe(output)), reduction(op), group.stream),
    )
    return output
end

"""
    bcast!(group, a; root = 0)

Copy rank `root`'s array to all ranks, in place. Elements may be of any type without references, such as `Bool` or `UInt64`.
"""
function bcast!(group::Group, a::AbstractArray; root::Integer = 0)
    GC.@preserve a check(Low.ddp_group_broadcast(group.handle, Ref(describe_bits(a)), root, group.stream))
    return a
end

"""
    reduce_metrics!(group, values, op = +)

Reduce up to 1024 numbers in one message. Sum first and divide afterwards: with unequal counts an average of averages is wrong.
"""
function reduce_metrics!(group::Group, values::Vector{Float64}, op = +)
    check(Low.ddp_group_reduce_metrics(group.handle, values, length(values), reduction(op)))
    return values
end

"""
    allreduce_rows(group, indices, rows, op = +)

Reduce rows of a table, of which every rank has some: the gradient of an embedding, without the rows that nobody touched. `rows` has one
column, or slice of the last dimension, for each index; indices count from 1. Gives the union of the indices, in rising order, and the sum or
`average` of each row. Collective.
"""
function allreduce_rows(group::Group, indices::AbstractVector{<:Integer}, rows::AbstractArray{T,N}, op = +) where {T,N}
    from, count = Int64.(indices) .- 1, Ref{Int64}(0)
    GC.@preserve from rows check(
        Low.ddp_group_all_reduce_rows(group.handle, Ref(describe(from)), Ref(describe(rows)), reduction(op), count, group.stream),
    )
    union, result = Vector{Int64}(undef, count[]), Array{T,N}(undef, size(rows)[1:N-1]..., count[])
    GC.@preserve union result check(Low.ddp_group_get_rows(group.handle, Ref(describe(union)), Ref(describe(result))))
    return union .+ 1, result
end

"""
    alloc(group, T, dims...)

An array of zeros within reach of the other ranks of this host: parameters and gradients in it are reduced without a copy. It is given
back when it is freed (`free!`, or by closing the group) and nothing of Julia's refers to it any more.
"""
function alloc(group::Group, ::Type{T}, dims::Integer...) where {T}
    dtype(T)
    data, extents = Ref{Ptr{Cvoid}}(C_NULL), Int.(dims)
    check(Low.ddp_group_alloc(group.handle, array_bytes(T, extents), data))
    try
        return library_array(T, data[], extents)
    catch
        Low.ddp_group_free(group.handle, data[]) # it is on a GPU
        rethrow()
    end
end

"""
    free!(group, a)

Free what `alloc` gave, after the models that use it. The array can still be used; its memory is given back with the last reference to it. Where
nothing of it is used any more, `finalize(a)` after this gives it back at once.
"""
free!(group::Group, a::Array) = GC.@preserve a check(Low.ddp_group_free(group.handle, pointer(a)))

"""
    share!(group, a)

Let the other ranks of this host reach the memory of an array where it is: what lies in it is reduced without a copy. The array must stay
until `unshare!` (the caller keeps a reference to it) and must not be resized. Raises an error with the status `NOT_SUPPORTED` and the reason where it
stays private.
"""
share!(group::Group, a::Array) = GC.@preserve a check(Low.ddp_group_share(group.handle, pointer(a), sizeof(a)))

"""
    unshare!(group, a)

Make the memory of an array that was given to `share!` private again, with its contents, after the models that use it.
"""
unshare!(group::Group, a::Array) = GC.@preserve a check(Low.ddp_group_unshare(group.handle, pointer(a)))

"""
    LibDDP.lux_backend(group)

The group as a back end of `Lux.DistributedUtils`, when Lux is loaded too.
"""
function lux_backend end
