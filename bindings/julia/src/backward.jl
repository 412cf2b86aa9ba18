# SPDX-License-Identifier: Apache-2.0
"""
    backward(f, model; accumulate = false, alone = false, part = nothing)

A backward pass: `f(model)` marks every parameter with `ready!`; afterwards the gradients are the mean over all ranks, the same bits
everywhere. With `accumulate` nothing is sent: a later pass sends the whole. With `alone` nothing is sent either, and the gradients
are final on this rank: `average_parameters!` every few steps brings the ranks together. Collective without these two. If `f` throws, the pass is
abandoned: it fails on the other ranks too, with the exception as the reason, and the group goes on. An exception of a rule that runs in
the pass (`CustomOptimizer` with `in_backward`) is thrown here, when the pass ends.

Where the global batch has parts (`Group(; virtual_ranks = 8)`), a step has one pass for each of `parts(group)`, with its number as `part`: that of
this rank's last part is reduced.
"""
function backward(f, model::Model; accumulate::Bool = false, alone::Bool = false, part::Union{Integer,Nothing} = nothing)
    accumulate + alone + (part !== nothing) > 1 && throw(ArgumentError("a pass accumulates, is this rank's alone, or ends a part"))
    is_last = part === nothing || part == last(parts(model.group))
    kind = accumulate ? Low.DDP_PASS_ACCUMULATE : alone ? Low.DDP_PASS_LOCAL : is_last ? Low.DDP_PASS_REDUCE : Low.DDP_PASS_PART
    model.rule.cause = nothing
    check(Low.ddp_model_begin_backward(model.handle, kind))
    result = try
        answer = f(model)
        kind == Low.DDP_PASS_REDUCE && pull_buckets(model, 1)
        answer
    catch e
        Low.ddp_model_abandon_backward(model.handle, one_line(e), model.stream) # its error is a consequence of this one
        rethrow()
    end
    check(Low.ddp_model_end_backward(model.handle, model.stream), model.rule)
    return result
end

"""
    ready!(model, index)

The gradient of a parameter is complete. Its bucket is reduced while the program goes on; until `backward` returns neither read nor write
it. From any thread.
"""
ready!(model::Model, index::Integer) = check(Low.ddp_model_mark_ready(model.handle, index - 1, model.stream))

"""
    ready!(model, index, range)

The elements `range` of a flattened gradient are complete: one array that holds many layers, in the order of its memory.
"""
ready!(model::Model, index::Integer, range::AbstractUnitRange) =
    check(Low.ddp_model_mark_range_ready(model.handle, index - 1, first(range) - 1, length(range), model.stream))

"""The gradient of a parameter will not come in this pass on this rank. Needs `Model(group; unused = :allow)`. From any thread."""
unused!(model::Model, index::Integer) = check(Low.ddp_model_mark_unused(model.handle, index - 1))

"""Did any rank contribute to a parameter in the last pass? `nothing` if no pass has ended."""
function was_used(model::Model, index::Integer)
    answer = Low.ddp_model_was_used(model.handle, index - 1)
    return answer < 0 ? nothing : answer == 1
end

"""Make every parameter its mean over the ranks, the same bits on all of them. Collective."""
average_parameters!(model::Model) = check(Low.ddp_model_average_parameters(model.handle, model.stream))

"""Set all gradients to zero."""
zero_grad!(model::Model) = check(Low.ddp_model_zero_grad(model.handle, model.stream))

"""
    mark_reduced!(model)

The program has reduced all gradients over the ranks itself, and not in a pass: they are good for one step of each optimizer, as those of a pass
that reduces. They must have the same bits on all ranks. Call it on all ranks, before each such step.
"""
mark_reduced!(model::Model) = check(Low.ddp_model_mark_reduced(model.handle))

"""The norm over all gradients as one vector: `p` is 1, 2 or Inf."""
function grad_norm(model::Model, p::Real = 2)
    norm = Ref{Float64}(0)
    check(Low.ddp_model_get_grad_norm(model.handle, p, norm, model.stream))
    return norm[]
end

"""
    clip_grad_norm!(model, max_norm, p = 2)

Scale all gradients down together so that their norm is at most `max_norm`; gives the norm before. For an update of your own; `SGD` and
`Adam` have the options `max_norm` and `clip_value`.
"""
function clip_grad_norm!(model::Model, max_norm::Real, p::Real = 2)
    norm = Ref{Float64}(0)
    check(Low.ddp_model_clip_grad_norm(model.handle, max_norm, p, norm, model.stream))
    return norm[]
end

"""Limit the magnitude of every element of the gradients."""
clip_grad_value!(model::Model, limit::Real) = check(Low.ddp_model_clip_grad_value(model.handle, limit, model.stream))

"""Multiply all gradients by a factor."""
scale_grad!(model::Model, factor::Real) = check(Low.ddp_model_scale_grad(model.handle, factor, model.stream))
