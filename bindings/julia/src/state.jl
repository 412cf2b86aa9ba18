# Checkpoints: safetensors files with the program's own names, loaded at any world size.

function with_state(call; model::Model, optimizer::Union{Optimizer,Nothing} = nothing, ema::Union{EMA,Nothing} = nothing, what...)
    handles = (model = model.handle, optimizer = optimizer === nothing ? C_NULL : optimizer.handle, ema = ema === nothing ? C_NULL : ema.handle)
    state = Ref(options(Low.ddp_state, (s, bytes) -> Low.ddp_state_init(s, bytes); handles..., what...))
    GC.@preserve model optimizer ema call(state)
    return nothing
end

"""
    save_state(path; model, optimizer = nothing, ema = nothing, epoch = 0, step = 0)
    save_state(io; ...)

Save a checkpoint. Rank 0 writes, to a file atomically and durably; the other ranks may pass `nothing` for `io`. Collective.
"""
save_state(path::AbstractString; what...) = (with_state(state -> check(Low.ddp_state_save_file(state, path)); what...); nothing)
function save_state(io::Union{IO,Nothing}; what...)
    with_state(; what...) do state
        io === nothing && return check(Low.ddp_state_save(state, C_NULL, C_NULL))
        with_callback(user -> Low.ddp_state_save(state, write_fn(), user), Callback(io))
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

function loaded(call; model::Model, partial = false, alone = false, what...)
    mode = Ref(options(Low.ddp_load_options, Low.ddp_load_options_init; partial = partial, local_ = alone))
    T = Low.ddp_load_report
    found = Ref(T(sizeof(T), zeros(Int64, fieldcount(T) - 1)...))
    with_state(state -> call(state, mode, found); model = model, what...)
    return (epoch = Int(found[].epoch), step = Int(found[].step), missing = names(Low.ddp_model_get_missing, model, found[].missing),
            unexpected = names(Low.ddp_model_get_unexpected, model, found[].unexpected))
end

names(get, model::Model, count) = [unsafe_string(get(model.handle, index)) for index in 0:count-1]
