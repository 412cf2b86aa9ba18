# SPDX-License-Identifier: Apache-2.0
# Hooks: what stands in the place of a bucket's plain reduction. They are pulled: they run on the task that makes the pass.

"""
    Bucket

Some gradients inside a hook, usable until the hook returns. `contents(bucket)` is all of them as one flat array, not divided;
`gradients(bucket)` the pairs of index and gradient. Both show another bucket's gradients afterwards. `allreduce!` and so on work on a
bucket as on a group.
"""
mutable struct Bucket
    handle::Ptr{Low.ddp_bucket}
    shown::Dict{Any,Any} # of the model
end

"""Number of the bucket in the order of the plan, from 1."""
number(bucket::Bucket) = Int(Low.ddp_bucket_get_index(bucket.handle)) + 1

"""Is it the last bucket of the pass?"""
is_last(bucket::Bucket) = Low.ddp_bucket_is_last(bucket.handle) == 1

show_tensor(bucket::Bucket, tensor) =
    get!(() -> library_array(tensor), bucket.shown, (tensor.data, tensor.dtype, dimensions(tensor)))

"""All gradients of a bucket as one flat array; each starts on a 64-byte boundary, with zeros between them."""
function contents(bucket::Bucket)
    tensor = Ref{Low.ddp_tensor}()
    check(Low.ddp_bucket_get_contents(bucket.handle, tensor))
    return show_tensor(bucket, tensor[])
end

"""The gradients of a bucket, as pairs of the parameter's index and its part of the contents."""
function gradients(bucket::Bucket)
    return map(0:Low.ddp_bucket_get_parameter_count(bucket.handle)-1) do position
        index, tensor = Ref{Int32}(-1), Ref{Low.ddp_tensor}()
        check(Low.ddp_bucket_get_parameter(bucket.handle, position, index, tensor))
        Int(index[]) + 1 => show_tensor(bucket, tensor[])
    end
end

"""The model's group, for collectives inside the hook."""
function group_of(bucket::Bucket)
    group = Ref{Ptr{Low.ddp_group}}(C_NULL)
    check(Low.ddp_bucket_get_group(bucket.handle, group))
    return group[]
end

function allreduce!(bucket::Bucket, a::AbstractArray = contents(bucket), op = average)
    GC.@preserve a check(Low.ddp_group_all_reduce(group_of(bucket), Ref(describe(a)), reduction(op), C_NULL))
    return a
end

function allgather!(bucket::Bucket, output::AbstractArray, input::AbstractArray)
    GC.@preserve output input check(Low.ddp_group_all_gather(group_of(bucket), Ref(describe(input)), Ref(describe(output)), C_NULL))
    return output
end

function reducescatter!(bucket::Bucket, output::AbstractArray, input::AbstractArray, op = +)
    GC.@preserve output input check(
        Low.ddp_group_reduce_scatter(group_of(bucket), Ref(describe(input)), Ref(describe(output)), reduction(op), C_NULL),
    )
    return output
end

function bcast!(bucket::Bucket, a::AbstractArray; root::Integer = 0)
    GC.@preserve a check(Low.ddp_group_broadcast(group_of(bucket), Ref(describe(a)), root, C_NULL))
    return a
end

"""
    allreduce_as!(bucket, :powersgd; options...)

Reduce the contents of a bucket with a built-in hook.
"""
function allreduce_as!(bucket::Bucket, kind::Symbol; changes...)
    if kind === :powersgd
        chosen = Ref(options(Low.ddp_powersgd_options, Low.ddp_powersgd_options_init; changes...))
        return GC.@preserve chosen check(Low.ddp_hook_powersgd(Base.unsafe_convert(Ptr{Low.ddp_powersgd_options}, chosen), bucket.handle))
    end
    throw(ArgumentError("the built-in hook is :powersgd, not :$kind; 16 bits on the wire are an option of the model"))
end

"""Did any rank contribute to the gradient at a position of the bucket, from 1? What a hook makes of another is dropped."""
is_used(bucket::Bucket, position::Integer) = Low.ddp_bucket_is_used(bucket.handle, position - 1) == 1

"""
    hook!(model, :powersgd; options...)
    hook!(f, model)

Give the model a hook, before `commit!`; all ranks give the same kind. `:powersgd` compresses, its options are the fields of `LibDDP.Low.ddp_powersgd_options`; `nothing` restores the
plain reduction. With a function, `backward` calls `f(bucket)` for each bucket when all is marked (`pull!` does it sooner), on the task that
makes the pass: it leaves in the bucket what the gradients become, the same on every rank. Its exception fails the pass on all ranks.
"""
function hook!(model::Model, kind::Union{Symbol,Nothing}; changes...)
    if kind === :powersgd
        chosen = Ref(options(Low.ddp_powersgd_options, Low.ddp_powersgd_options_init; changes...))
        fn = cglobal((:ddp_hook_powersgd, Low.libddp))
        return GC.@preserve chosen hook!(model, fn, Ptr{Cvoid}(Base.unsafe_convert(Ptr{Low.ddp_powersgd_options}, chosen)))
    end
    kind === nothing && return hook!(model, C_NULL)
    throw(ArgumentError("the built-in hook is :powersgd, not :$kind; 16 bits on the wire are an option of the model"))
end

"""
    hook!(model, fn::Ptr, user_data::Ptr = C_NULL)

A hook as an address, a `ddp_hook_fn`. It runs on a thread of the library, so it is written in C; with `Model(group; progress = :caller)` it
runs within the end of `backward`, on the thread that calls that, and may be a Julia function (`LibDDP.Low.@ddp_hook_fn`) that throws nothing.
"""
function hook!(model::Model, fn::Ptr{Cvoid}, user_data::Ptr{Cvoid} = C_NULL)
    check(Low.ddp_model_set_hook(model.handle, fn, user_data, C_NULL))
    model.hook = nothing
    return model
end

function hook!(f, model::Model)
    check(Low.ddp_model_set_pulled_hook(model.handle))
    model.hook = f
    return model
end

"""
    pull!(model)

Inside `backward`, between marks: run the hook for the buckets of which all gradients are marked here. Every rank must come to the same
buckets, so call it at the same places.
"""
pull!(model::Model) = pull_buckets(model, 0)

function pull_buckets(model::Model, rest)
    model.hook === nothing && return nothing
    handle = Ref{Ptr{Low.ddp_bucket}}(C_NULL)
    while true
        check(Low.ddp_model_next_bucket(model.handle, rest, handle))
        handle[] == C_NULL && return nothing
        bucket = Bucket(handle[], model.shown)
        try
            model.hook(bucket)
        catch e
            Low.ddp_model_finish_bucket(model.handle, 1, one_line(e)) # its error is a consequence of this one
            rethrow()
        finally
            bucket.handle = Ptr{Low.ddp_bucket}(C_NULL)
        end
        check(Low.ddp_model_finish_bucket(model.handle, 0, Cstring(C_NULL)))
    end
end

# An exception as the text that other ranks get.
one_line(e) = replace(sprint(showerror, e), r"[\0\n]+" => " ")
