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

"""
    SGD(model; options...)

Stochastic gradient descent. Options are the fields of `LibDDP.Low.ddp_sgd_options`: `rate`, `momentum`, `weight_decay`, and so on.
"""
function SGD(model::Model; changes...)
    chosen = Ref(options(Low.ddp_sgd_options, Low.ddp_sgd_options_init; changes...))
    return Optimizer(handle -> Low.ddp_optimizer_create_sgd(model.handle, chosen, handle), model)
end

"""
    Adam(model; options...)

AdamW, or Adam with `decoupled = false`. Options are the fields of `LibDDP.Low.ddp_adam_options`.
"""
function Adam(model::Model; changes...)
    chosen = Ref(options(Low.ddp_adam_options, Low.ddp_adam_options_init; changes...))
    return Optimizer(handle -> Low.ddp_optimizer_create_adam(model.handle, chosen, handle), model)
end

"""
    CustomOptimizer(update, model)

`update(index, value, grad, rate)` changes one parameter in place; `step!` calls it for every used parameter in order. It must do the same
on every rank. The arrays are those that were lent, and those of `grad`. The rate starts at 0: call `rate!`.
"""
function CustomOptimizer(update, model::Model)
    callback = Callback((index, rate) -> update(index, lent_array(model.values[index]), grad(model, index), rate))
    return Optimizer(model, callback) do handle # which holds the callback, so there is nothing to release
        Low.ddp_optimizer_create_custom(model.handle, update_fn(), pointer_from_objref(callback), C_NULL, handle)
    end
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
    check(Low.ddp_optimizer_set_group(optimizer.handle, index - 1, weight_decay, rate_scale))
