# SPDX-License-Identifier: Apache-2.0
"""
    Model(group; options...)

The parameters and buffers that a program lends to libddp, and their gradients. Options are the fields of
`LibDDP.Low.ddp_model_options`: `bucket_bytes`, `reduce = average` or `+`, `unused = :allow`, and so on.
"""
mutable struct Model
    handle::Ptr{Low.ddp_model}
    stream::Ptr{Cvoid}
    group::Group
    values::Vector{Any}  # the parameters by index: what is lent, for as long as the model exists
    buffers::Vector{Any} # the same
    grads::Vector{Any}   # by index; nothing where libddp owns the gradient
    hook::Any            # runs for each bucket of a pass, or nothing
    views::Vector{Any}   # by index, once committed: the gradients as arrays
    shown::Dict{Any,Any} # arrays that hooks have seen, by address, type and size
    own_values::Bool     # the option
    progress::Int32      # the option
    rule::Callback       # of a CustomOptimizer with in_backward: a pass calls it
end

function Model(group::Group; changes...)
    chosen = Ref(options(Low.ddp_model_options, Low.ddp_model_options_init; changes...))
    handle = Ref{Ptr{Low.ddp_model}}(C_NULL)
    check(Low.ddp_model_create(group.handle, chosen, handle))
    lent, shown, rule = (Any[], Any[], Any[]), Dict{Any,Any}(), Callback(nothing)
    return finalizer(close, Model(handle[], C_NULL, group, lent..., nothing, Any[], shown, chosen[].own_values != 0, chosen[].progress, rule))
end

function Base.close(model::Model)
    handle, model.handle = model.handle, Ptr{Low.ddp_model}(C_NULL)
    Low.ddp_model_destroy(handle)
    foreach(empty!, (model.values, model.buffers, model.grads, model.views, model.shown))
    return nothing
end

Base.isopen(model::Model) = model.handle != C_NULL

# A description of an array for C, or NULL for none.
optional(::Nothing) = Ptr{Low.ddp_tensor}(C_NULL)
optional(a::AbstractArray) = Ref(describe(a))

"""
    add_parameter!(model, name, value, grad = nothing)

Lend a parameter, in the order of the forward computation; gives its index. Without `grad` libddp owns the gradient, where it is
reduced without a copy: ask `grad(model, index)` for it after `commit!`.
"""
function add_parameter!(model::Model, name::AbstractString, value::AbstractArray, grad::Union{AbstractArray,Nothing} = nothing)
    index = Ref{Int32}(-1)
    GC.@preserve value grad check(
        Low.ddp_model_add_parameter(model.handle, name, optional(value), optional(grad), index),
    )
    push!(model.values, root(value))
    push!(model.grads, grad === nothing ? nothing : root(grad))
    return Int(index[]) + 1
end

"""
    add_parameter_without_grad!(model, name, value)

Lend a parameter whose gradient comes later: `set_grad!` gives it in each pass, before its mark.
"""
function add_parameter_without_grad!(model::Model, name::AbstractString, value::AbstractArray)
    index = Ref{Int32}(-1)
    GC.@preserve value check(Low.ddp_model_add_parameter_without_grad(model.handle, name, optional(value), index))
    push!(model.values, root(value))
    push!(model.grads, awaited)
    return Int(index[]) + 1
end
struct Awaited end # in the place of a gradient that is not there
const awaited = Awaited()

"""
    add_buffer!(model, name, value)

Lend an array that is not trained but belongs to the model: running statistics, tables.
"""
function add_buffer!(model::Model, name::AbstractString, value::AbstractArray)
    index = Ref{Int32}(-1)
    GC.@preserve value check(Low.ddp_model_add_buffer(model.handle, name, optional(value), index))
    push!(model.buffers, root(value))
    return Int(index[]) + 1
end

"""
    lend!(model, parameters; prefix = "")

Lend all arrays of a tree of named tuples, tuples and arrays, as Lux keeps its parameters, in order. Gives a tree of the same form that holds
the indices; names are the paths, joined by dots.
"""
lend!(model::Model, a::AbstractArray; prefix::AbstractString = "parameter") = add_parameter!(model, prefix, a)
function lend!(model::Model, tree::Union{NamedTuple,Tuple}; prefix::AbstractString = "")
    names = keys(tree)
    found = map(n -> lend!(model, tree[n]; prefix = isempty(prefix) ? string(n) : "$prefix.$n"), names)
    return tree isa NamedTuple ? NamedTuple{names}(found) : Tuple(found)
end

"""Agree with all ranks on the model; afterwards every rank has rank 0's values. Collective."""
function commit!(model::Model)
    check(Low.ddp_model_commit(model.handle, model.stream))
    if model.own_values && model.stream == C_NULL
        fill!(model.values, nothing)
    end
    model.views = Any[view_of(model, i) for i in 1:length(model)]
    return model
end

"""
    reopen!(model)

Lead the committed model back to building, with what it has learnt: `add_parameter!`, `remove_parameter!` and the like, then `commit!` again.
What stays keeps its index, its value and its gradient, the state of optimizers and averages. Collective. Experimental.
"""
function reopen!(model::Model)
    check(Low.ddp_model_reopen(model.handle, model.stream))
    empty!(model.views)
    return model
end

"""
    remove_parameter!(model, index)

Take a parameter out of a model that is building; its index is not used again. Experimental.
"""
function remove_parameter!(model::Model, index::Integer)
    check(Low.ddp_model_remove_parameter(model.handle, index - 1))
    model.values[index] = nothing
    model.grads[index] = removed
    return model
end
struct Removed end # in the place of the gradient of a parameter that is not there
const removed = Removed()

"""
    remove_buffer!(model, index)

The same for a buffer, by the index that `add_buffer!` gave. Experimental.
"""
function remove_buffer!(model::Model, index::Integer)
    check(Low.ddp_model_remove_buffer(model.handle, index - 1))
    model.buffers[index] = nothing
    return model
end

"""The number of parameters that were added; those that were removed count too."""
Base.length(model::Model) = Int(Low.ddp_model_get_parameter_count(model.handle))

function value_tensor(model::Model, index::Integer)
    tensor = Ref{Low.ddp_tensor}()
    check(Low.ddp_model_get_value(model.handle, index - 1, tensor))
    return tensor[]
end

function grad_tensor(model::Model, index::Integer)
    tensor = Ref{Low.ddp_tensor}()
    check(Low.ddp_model_get_grad(model.handle, index - 1, tensor))
    return tensor[]
end

# The gradient of a parameter as an array of the parameter's size: what was lent, or libddp's memory. Nothing where that is on a GPU.
function view_of(model::Model, index::Integer)
    get(model.grads, index, nothing) isa Union{Awaited,Removed} && return nothing
    tensor = grad_tensor(model, index)
    lent = get(model.grads, index, nothing)
    lent === nothing && return tensor.device == Low.DDP_CPU ? library_array(tensor) : nothing
    array, dims = lent_array(lent), dimensions(tensor)
    return size(array) == dims ? array : reshape(array, dims)
end

"""
    grad(model, index)
    grad(model, index, T)

The gradient of a parameter, once the model is committed: the array that was lent, or one of libddp's memory, which stays as long as anything
refers to it. From any thread. Which array that is Julia knows only when the program runs, so a loop over it belongs into a function of its own; or say the
type, as in `grad(model, index, Matrix{Float32})`: another one is a `TypeError`.
"""
grad(model::Model, index::Integer, ::Type{T}) where {T<:AbstractArray} = grad(model, index)::T
function grad(model::Model, index::Integer)
    checkindex(Bool, eachindex(model.views), index) || grad_tensor(model, index) # which fails and says why
    get(model.grads, index, nothing) isa Removed && grad_tensor(model, index) # the same
    isempty(model.views) && return view_of(model, index)
    return model.views[index]
end

"""
    value(model, index)

The value of a parameter as an array: of the memory that was lent, or with the option `own_values = true`, once the model is committed, of
libddp's memory, which stays as long as anything refers to it.
"""
function value(model::Model, index::Integer)
    if get(model.values, index, nothing) !== nothing
        return lent_array(model.values[index])
    end
    tensor = Ref{Low.ddp_tensor}()
    check(Low.ddp_model_get_value(model.handle, index - 1, tensor))
    return library_array(tensor[])
end

"""
    set_buckets!(model, buckets)

Which gradients share a bucket, and the order of buckets and of the gradients in each: an iterable of iterables of parameter numbers, each number once.
Before `commit!`, after the last parameter. Experimental.
"""
function set_buckets!(model::Model, buckets)
    numbers = Int32[]
    for bucket in buckets
        isempty(numbers) || push!(numbers, -1)
        append!(numbers, index - 1 for index in bucket)
    end
    check(Low.ddp_model_set_buckets(model.handle, numbers, length(numbers)))
    return model
end

"""
    set_grad!(model, index, array)

This pass's gradient of a parameter that was lent with one or without, for programs whose gradients move. Before `ready!`. `nothing`, for a
parameter that was lent without one: libddp does not use its memory again.
"""
function set_grad!(model::Model, index::Integer, ::Nothing)
    check(Low.ddp_model_set_grad(model.handle, index - 1, optional(nothing)))
    model.grads[index] = awaited
    isempty(model.views) || (model.views[index] = nothing)
    return nothing
end
function set_grad!(model::Model, index::Integer, array::AbstractArray)
    present, given = value_tensor(model, index), describe(array)
    (present.dtype == given.dtype && prod(present.shape[1:present.ndim]) == length(array)) ||
        throw(ArgumentError("parameter $index needs a gradient of its own type and length, not a $(typeof(array)) of size $(size(array))"))
    GC.@preserve array check(Low.ddp_model_set_grad(model.handle, index - 1, optional(array)))
    model.grads[index] = root(array)
    isempty(model.views) || (model.views[index] = view_of(model, index))
    return nothing
end

"""Copy all buffers from one rank to the others. Collective."""
sync_buffers!(model::Model; root::Integer = 0) = check(Low.ddp_model_sync_buffers(model.handle, root, model.stream))

"""Throw `:MISMATCH` with the first difference unless parameters and buffers are bitwise equal on all ranks. Collective."""
check_replicas(model::Model) = check(Low.ddp_model_check_replicas(model.handle, model.stream))

"""Wait until parameter `index`, counted from 0, has its value of the last step (`late_values`); without it: all parameters."""
wait_value(model::Model, index::Integer) = check(Low.ddp_model_wait_value(model.handle, index, model.stream))
wait_values(model::Model) = check(Low.ddp_model_wait_values(model.handle))

"""Has parameter `index`, counted from 0, its value of the last step? Never waits."""
value_ready(model::Model, index::Integer) = Low.ddp_model_value_ready(model.handle, index) == 1

"""One number over names and contents of all parameters on this rank."""
function parameter_hash(model::Model)
    hash = Ref{Int64}(0)
    check(Low.ddp_model_get_hash(model.handle, hash))
    return reinterpret(UInt64, hash[])
end

"""Numbers of the last and of all passes, named as in `LibDDP.Low.ddp_model_stats`."""
function stats(model::Model)
    T = Low.ddp_model_stats
    found = Ref(T(sizeof(T), zeros(Int64, fieldcount(T) - 1)...))
    check(Low.ddp_model_get_stats(model.handle, found))
    return report(found[])
end

"""The bucket plan as text, one line a bucket."""
function describe_plan(model::Model)
    needed = Ref{Int64}(0)
    check(Low.ddp_model_describe_plan(model.handle, C_NULL, 0, needed))
    text = Vector{UInt8}(undef, needed[])
    check(Low.ddp_model_describe_plan(model.handle, text, length(text), needed))
    return String(text[1:end-1])
end

"""
    metadata!(model, key, value)

Remember a text under a key; it is saved and loaded with the model. `nothing` removes the key.
"""
metadata!(model::Model, key::AbstractString, value::Union{AbstractString,Nothing}) =
    check(Low.ddp_model_set_metadata(model.handle, key, value === nothing ? Cstring(C_NULL) : value))

"""The text under a key, or `nothing`."""
function metadata(model::Model, key::AbstractString)
    value = Ref{Ptr{UInt8}}(C_NULL)
    check(Low.ddp_model_get_metadata(model.handle, key, value))
    return value[] == C_NULL ? nothing : unsafe_string(value[])
end
