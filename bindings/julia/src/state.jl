# Checkpoints: safetensors files with the program's own names, loaded at any world size.

function with_state(call; model::Model, optimizer::Union{Optimizer,Nothing} = nothing, ema::Union{EMA,Nothing} = nothing, alone = false, what...)
    handles = (model = model.handle, optimizer = optimizer === nothing ? C_NULL : optimizer.handle, ema = ema === nothing ? C_NULL : ema.handle)
    state = Ref(options(Low.ddp_state, (s, bytes) -> Low.ddp_state_init(s, bytes); handles..., local_ = alone, what...))
    GC.@preserve model optimizer ema call(state)
    return (epoch = Int(state[].epoch), step = Int(state[].step))
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

Load a checkpoint: rank 0 reads, all ranks receive. Nothing is touched unless all of it fits. Gives `(epoch, step)`. Collective.
With `partial` what model and checkpoint both have, see `missing_tensors`; with `alone` this rank by itself, before `commit!`.
"""
load_state!(path::AbstractString; what...) = with_state(state -> check(Low.ddp_state_load_file(state, path)); what...)
function load_state!(io::Union{IO,Nothing}; what...)
    return with_state(; what...) do state
        io === nothing && return check(Low.ddp_state_load(state, C_NULL, C_NULL))
        with_callback(user -> Low.ddp_state_load(state, read_fn(), user), Callback(io))
    end
end

function names(get, model::Model)
    found, name = String[], get(model.handle, 0)
    while name != C_NULL
        push!(found, unsafe_string(name))
        name = get(model.handle, length(found))
    end
    return found
end

"""The tensors that the model, optimizer or averages have and the checkpoint of the last load had not."""
missing_tensors(model::Model) = names(Low.ddp_model_get_missing, model)

"""The tensors that the checkpoint of the last load had and the model has not."""
unexpected_tensors(model::Model) = names(Low.ddp_model_get_unexpected, model)
