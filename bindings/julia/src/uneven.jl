# SPDX-License-Identifier: Apache-2.0
# Ranks with unequal data.

"""
    weight!(model, weight)

How much this rank's gradients count, from the next pass on: its number of samples. The result of a pass is then sum(weight * gradient) /
sum(weight). Needs `Model(group; divisor = :weights)`. Before the first `ready!` of a pass.
"""
weight!(model::Model, weight::Real) = check(Low.ddp_model_set_weight(model.handle, weight))

"""This rank has no batch after the open or the next pass; every rank then finds `last` in `pass_report`."""
last_pass!(model::Model) = check(Low.ddp_model_set_last_pass(model.handle))

"""Take part in one pass without a batch: this rank contributes nothing and receives the result. Collective."""
skip_backward(model::Model) = with_callback(_ -> Low.ddp_model_skip_backward(model.handle, model.stream), model.rule)

"""
    join!(model)

This rank is out of data: answer the passes of the others until every rank has joined. Then all ranks hold the same state and go on
together. Needs `Model(group; uneven_inputs = true)`. Collective.
"""
join!(model::Model) = with_callback(_ -> Low.ddp_model_join(model.handle, model.stream), model.rule)

"""Who took part in the last pass: `contributors`, `weight` (their sum), `last` (some rank has no batch for the next), `absent` (the
ranks that did not contribute)."""
function pass_report(model::Model)
    T = Low.ddp_pass_report
    found = Ref(T(sizeof(T), zeros(Int64, fieldcount(T) - 1)...))
    check(Low.ddp_model_get_pass_report(model.handle, found))
    absent, count = zeros(Int32, found[].absent_count), Ref{Int32}(0)
    check(Low.ddp_model_get_absent(model.handle, absent, length(absent), count))
    return (contributors = Int(found[].contributors), last = found[].last != 0, weight = found[].weight, absent = Int.(absent))
end
