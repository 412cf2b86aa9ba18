# SPDX-License-Identifier: Apache-2.0
"""
    Optimizer

Updates the parameters of a model, the same bits on every rank: `SGD`, `Adam` or `CustomOptimizer`.
"""
mutable struct Optimizer
    handle::Ptr{Low.ddp_optimizer}
    model::Model
    callback::Callback # of CustomOptimizer; libddp holds its address
end

function Optimizer(create, model::Model, callback = Callback(nothing))
    handle = Ref{Ptr{Low.ddp_optimizer}}(C_NULL)
    check(create(handle))
    return finalizer(close, Optimizer(handle[], model, callback))
end

function Base.close(optimizer::Optimizer)
    handle, optimizer.handle = optimizer.handle, Ptr{Low.ddp_optimizer}(C_NULL)
    Low.ddp_optimizer_destroy(handle)
    return nothing
end

# The options of a rule and those of every optimizer, from the keywords of one call.
# `parameters` (numbers from 1) becomes an array for C, which lives while the result does.
function with_shared(type, init, changes)
    list = Int32[index - 1 for index in get(changes, :parameters, ())]
    haskey(changes, :parameters) && isempty(list) && throw(ArgumentError("parameters is empty; leave it out for all that have no optimizer"))
    given = Dict{Symbol,Any}(changes)
    haskey(changes, :parameters) && (given[:parameters] = pointer(list); given[:parameter_count] = length(list))
    changes = given
    isown(change) = hasfield(type, first(change))
    own = Ref(options(type, init; filter(isown, collect(pairs(changes)))...))
    shared = Ref(options(Low.ddp_optimizer_options, Low.ddp_optimizer_options_init; filter(!isown, collect(pairs(changes)))...))
    return own, shared, list
end

"""
    SGD(model; options...)

Stochastic gradient descent. Options are the fields of `LibDDP.Low.ddp_sgd_options` (`rate`, `momentum`, `weight_decay`, and so on)
and of `LibDDP.Low.ddp_optimizer_options`, which all optimizers have (`shard`, `max_norm`, and so on). `parameters` are the numbers (from 1) of
those that it changes; without it an optimizer has all parameters that have none.
"""
function SGD(model::Model; changes...)
    own, shared, list = with_shared(Low.ddp_sgd_options, Low.ddp_sgd_options_init, changes)
    return Optimizer(handle -> GC.@preserve(list, Low.ddp_optimizer_create_sgd(model.handle, own, shared, handle)), model)
end

"""
    Adam(model; options...)

AdamW, or Adam with `decoupled = false`. Options are the fields of `LibDDP.Low.ddp_adam_options` and of
`LibDDP.Low.ddp_optimizer_options`, which all optimizers have.
"""
function Adam(model::Model; changes...)
    own, shared, list = with_shared(Low.ddp_adam_options, Low.ddp_adam_options_init, changes)
    return Optimizer(handle -> GC.@preserve(list, Low.ddp_optimizer_create_adam(model.handle, own, shared, handle)), model)
end

"""
    Slice

A stretch of a parameter that a rule changes: `index`, the vectors `value`, `grad` and `state` (one for each name), `first` (the place of its first
element in the parameter), `step` (of this parameter, from 1), `rate` and `weight_decay`. The vectors are valid during the call.
"""
struct Slice{T}
    index::Int
    value::Vector{T}
    grad::Vector{T}
    state::Vector{Vector{T}}
    first::Int
    step::Int
    rate::Float64
    weight_decay::Float64
end

function Slice(raw::Low.ddp_update_slice)
    raw.device == Low.DDP_CPU || error("parameter $(raw.index + 1) is on a GPU, where a rule written in Julia cannot work")
    T = raw.dtype == Low.DDP_F64 ? Float64 : Float32
    vector(data) = unsafe_wrap(Array, Ptr{T}(data), raw.count)
    states = [vector(raw.state[k]) for k in 1:raw.state_count]
    return Slice{T}(raw.index + 1, vector(raw.value), vector(raw.grad), Vector{Vector{T}}(states), raw.first + 1, raw.step, raw.rate, raw.weight_decay)
end

"""
    CustomOptimizer(update, model; states = (), options...)

`update(slice)` changes `slice.value` in place, the same on every rank; see [`Slice`](@ref). libddp keeps, shards and saves an array for each name in
`states`. Slices begin and end anywhere, unless `whole_tensors = true`. Options are the fields of `LibDDP.Low.ddp_custom_options` (`rate`, `weight_decay`) and of
`LibDDP.Low.ddp_optimizer_options`. The rate starts at 0.

`in_backward = true` needs `Model(group; progress = :caller)`: such a model calls no function of the program on a thread of the library, which
Julia does not bear. `update` then runs within `ready!`, the end of `backward`, `step!` or another call on the group, on whichever Julia thread
makes that call; several threads that mark may run it at the same time.
"""
function CustomOptimizer(update, model::Model; states = (), changes...)
    callback = Callback(raw -> update(Slice(raw)))
    own, shared, list = with_shared(Low.ddp_custom_options, Low.ddp_custom_options_init, changes)
    in_backward = shared[].in_backward != 0
    in_backward && model.progress != Low.DDP_PROGRESS_CALLER && throw(
        ArgumentError("in_backward: a rule written in Julia cannot run on a thread of the library; make the model with Model(group; progress = :caller)"),
    )
    optimizer = Optimizer(model, callback) do handle # which holds the callback, so there is nothing to release
        GC.@preserve list Low.ddp_optimizer_create_custom(model.handle, own, shared, join(states, ","), update_fn(), pointer_from_objref(callback),
                                                          C_NULL, handle)
    end
    in_backward && (model.rule = callback) # a pass holds the rule, also when the optimizer is forgotten
    return optimizer
end

"""Update every parameter that was used in the last pass. An exception of a custom update is thrown again here."""
step!(optimizer::Optimizer) =
    with_callback(_ -> Low.ddp_optimizer_step(optimizer.handle, optimizer.model.stream), optimizer.callback)

"""Set the learning rate of the steps that follow; every rank must set the same."""
rate!(optimizer::Optimizer, rate::Real) = check(Low.ddp_optimizer_set_rate(optimizer.handle, rate))

"""The learning rate in use."""
function rate(optimizer::Optimizer)
    rate = Ref{Float64}(0)
    check(Low.ddp_optimizer_get_rate(optimizer.handle, rate))
    return rate[]
end

"""The number of steps taken, those before a load included."""
function step_count(optimizer::Optimizer)
    count = Ref{Int64}(0)
    check(Low.ddp_optimizer_get_step_count(optimizer.handle, count))
    return Int(count[])
end

"""
    loss_scale!(optimizer; options...)

Use a loss scale from the next step on, for 16-bit gradients. Options are the fields of `LibDDP.Low.ddp_loss_scale_options`.
"""
loss_scale!(optimizer::Optimizer; changes...) = check(
    Low.ddp_optimizer_set_loss_scale(optimizer.handle, Ref(options(Low.ddp_loss_scale_options, Low.ddp_loss_scale_options_init; changes...))),
)

"""What to multiply the next loss with; 1 without a loss scale."""
function loss_scale(optimizer::Optimizer)
    scale = Ref{Float64}(1)
    check(Low.ddp_optimizer_get_loss_scale(optimizer.handle, scale))
    return scale[]
end

"""
    copy_loss_scale!(to, optimizer)

Write what to multiply the next loss with into an array of one element, `Float32` or `Float64`. On a GPU it is written in the order of the model's
stream, and the host does not wait.
"""
function copy_loss_scale!(to::AbstractArray, optimizer::Optimizer)
    GC.@preserve to check(Low.ddp_optimizer_copy_loss_scale(optimizer.handle, Ref(describe(to)), optimizer.model.stream))
    return to
end

"""The number of steps left out because of gradients that were not finite."""
function skipped_count(optimizer::Optimizer)
    count = Ref{Int64}(0)
    check(Low.ddp_optimizer_get_skipped_count(optimizer.handle, count))
    return Int(count[])
end

"""The 2-norm of the gradients at the last step, before clipping; -1 if the step did not look at it."""
function grad_norm(optimizer::Optimizer)
    norm = Ref{Float64}(-1)
    check(Low.ddp_optimizer_get_grad_norm(optimizer.handle, norm))
    return norm[]
end

"""
    parameter_options!(optimizer, index; weight_decay = 0, rate_scale = 1)

Give one parameter its own weight decay and a factor on the learning rate; a factor of 0 freezes it.
"""
parameter_options!(optimizer::Optimizer, index::Integer; weight_decay::Real = 0, rate_scale::Real = 1) =
    check(Low.ddp_optimizer_set_parameter_options(optimizer.handle, index - 1, weight_decay, rate_scale))
