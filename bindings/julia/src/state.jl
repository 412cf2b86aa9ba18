# SPDX-License-Identifier: Apache-2.0
# Checkpoints: safetensors files with the program's own names, loaded at any world size.

function with_state(call; model::Model, optimizer::Union{Optimizer,AbstractVector{Optimizer},Nothing} = nothing, ema::Union{EMA,Nothing} = nothing,
                    outer::Union{Outer,Nothing} = nothing, what...)
    several = optimizer isa AbstractVector ? [each.handle for each in optimizer] : Ptr{Low.ddp_optimizer}[]
    handles = (model = model.handle, optimizer = optimizer isa Optimizer ? optimizer.handle : C_NULL,
               optimizers = isempty(several) ? C_NULL : pointer(several), optimizer_count = length(several), ema = ema === nothing ? C_NULL : ema.handle,
               outer = outer === nothing ? C_NULL : outer.handle)
    state = Ref(options(Low.ddp_state, (s, bytes) -> Low.ddp_state_init(s, bytes); handles..., what...))
    GC.@preserve model optimizer several ema outer call(state)
    return nothing
end

"""
    save_state(path; model, optimizer = nothing, ema = nothing, epoch = 0, step = 0)
    save_state(io; alone = false, ...)

Save a checkpoint. Rank 0 writes, to a file atomically and durably; the other ranks may pass `nothing` for `io`. Collective.
`optimizer` is one or a vector of several, in the same order for save and load.
With `alone` this rank by itself writes what it has; refused where the optimizer is sharded over several ranks.
"""
save_state(path::AbstractString; what...) = (with_state(state -> check(Low.ddp_state_save_file(state, path)); what...); nothing)
function save_state(io::Union{IO,Nothing}; alone = false, what...)
    save = alone ? Low.ddp_state_save_local : Low.ddp_state_save
    with_state(; what...) do state
        io === nothing && return check(save(state, C_NULL, C_NULL))
        with_callback(user -> save(state, write_fn(), user), Callback(io))
    end
    return nothing
end

"""
    load_state!(path; model, optimizer = nothing, ema = nothing, partial = false, alone = false)
    load_state!(io; ...)

Load a checkpoint: rank 0 reads, all ranks receive. Nothing is touched unless all of it fits. Gives `(epoch, step, missing, unexpected)`. Collective.
With `partial` what model and checkpoint both have: `missing` then names the tensors that the checkpoint has not, `unexpected` those that the
model has not. With `alone` this rank by itself, before `commit!`.
"""
load_state!(path::AbstractString; what...) = loaded((state, mode, found) -> check(Low.ddp_state_load_file(state, path, mode, found)); what...)
function load_state!(io::Union{IO,Nothing}; what...)
    return loaded(; what...) do state, mode, found
        io === nothing && return check(Low.ddp_state_load(state, C_NULL, C_NULL, mode, found))
        with_callback(user -> Low.ddp_state_load(state, read_fn(), user, mode, found), Callback(io))
    end
end

"""
    save_latest(folder; model, optimizer = nothing, ema = nothing, epoch = 0, step = 0, keep = 0)

Save `step-000000001200.safetensors`, with the number of `step`, into a folder that is there, and keep the newest `keep` files (0: all). Collective.
"""
function save_latest(folder::AbstractString; keep::Integer = 0, what...)
    with_state(state -> check(Low.ddp_state_save_latest(state, folder, keep)); what...)
    return nothing
end

"""
    load_latest!(folder; model, optimizer = nothing, ema = nothing, partial = false, alone = false)

Load the newest valid checkpoint of a folder that `save_latest` has filled. As `load_state!`, and gives `file` and `skipped` too: the newer files that
were not valid, with the reason. Fails with `:NO_CHECKPOINT` where there is none yet. Collective.
"""
function load_latest!(folder::AbstractString; model::Model, what...)
    newer = Ref{Int64}(0)
    found = loaded(; model = model, what...) do state, mode, report
        check(Low.ddp_state_load_latest(state, folder, mode, report))
        newer[] = report[].skipped
    end
    return (; found..., file = unsafe_string(Low.ddp_model_get_loaded_file(model.handle)), skipped = names(Low.ddp_model_get_skipped, model, newer[]))
end

"""
    keep_state(; model, optimizer = nothing, ema = nothing, epoch = 0, step = 0, own = UInt8[])

Keep the state in the memory of the ranks: `recover!` goes back to it where it would need a checkpoint otherwise, with up to 65,536 bytes of the
program's `own`, of rank 0. The model is kept with all its optimizers and averages. The group must have been made with `recoverable = 1`. Collective.
"""
function keep_state(; own::AbstractVector{UInt8} = UInt8[], what...)
    bytes = Vector{UInt8}(own)
    GC.@preserve bytes with_state(state -> check(Low.ddp_state_keep(state, 1, C_NULL)); own = pointer(bytes), own_bytes = length(bytes), what...)
    return nothing
end

function loaded(call; model::Model, partial = false, alone = false, what...)
    mode = Ref(options(Low.ddp_load_options, Low.ddp_load_options_init; partial = partial, local_ = alone))
    T = Low.ddp_load_report
    found = Ref(T(sizeof(T), zeros(Int64, fieldcount(T) - 1)...))
    with_state(state -> call(state, mode, found); model = model, what...)
    return (epoch = Int(found[].epoch), step = Int(found[].step), missing = names(Low.ddp_model_get_missing, model, found[].missing),
            unexpected = names(Low.ddp_model_get_unexpected, model, found[].unexpected))
end

names(get, model::Model, count) = [unsafe_string(get(model.handle, index)) for index in 0:count-1]
