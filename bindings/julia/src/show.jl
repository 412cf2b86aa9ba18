# SPDX-License-Identifier: Apache-2.0
# What the REPL and error messages show of an object: what it is, not where it lies.

function Base.show(io::IO, group::Group)
    isopen(group) || return print(io, "Group(closed)")
    return print(io, "Group(rank ", group_rank(group), " of ", group_size(group), ", ", backend(group), ")")
end

function Base.show(io::IO, model::Model)
    isopen(model) || return print(io, "Model(closed)")
    state = isempty(model.views) ? "not committed" : "committed"
    elements = mapreduce(value -> value === nothing ? 0 : length(lent_array(value)), +, model.values; init = 0)
    return print(io, "Model(", length(model.values), " parameters, ", elements, " elements, ", state, ")")
end

function Base.show(io::IO, optimizer::Optimizer)
    optimizer.handle == C_NULL && return print(io, "Optimizer(closed)")
    return print(io, "Optimizer(rate ", rate(optimizer), ", ", step_count(optimizer), " steps)")
end
