# SPDX-License-Identifier: Apache-2.0
# A training with a rule of the program, in the step or within backward. The same in all processes of a test.
const OWN_RULE_STEPS = 4
const OWN_RULE_WAYS = ((false, false), (true, false), (true, true)) # in backward, sharded

mark_all(model) = foreach(i -> ready!(model, i), length(model):-1:1)

function mark_all_by_threads(model)
    Threads.@threads for i in length(model):-1:1
        ready!(model, i)
    end
end

function own_rule_model(group; options...)
    model = Model(group; first_bucket_bytes = 1 << 16, bucket_bytes = 1 << 16, options...)
    for i in 1:6
        add_parameter!(model, "p$i", Float32[sin(i + 3k) for k in 1:20_000])
    end
    return commit!(model)
end

weights_of(model) = vcat((reinterpret(UInt32, copy(value(model, i))) for i in 1:length(model))...)

function momentum!(slice)
    slice.state[1] .= 0.9f0 .* slice.state[1] .+ slice.grad
    slice.value .-= Float32(slice.rate) .* slice.state[1]
end

# The bits of all weights behind some steps.
function train_own_rule(group; in_backward = false, shard = false, mark = mark_all)
    model = own_rule_model(group; progress = in_backward ? :caller : :auto)
    calls = Threads.Atomic{Int}(0)
    optimizer = CustomOptimizer(model; states = ["speed"], rate = 0.1, in_backward = in_backward, shard = shard) do slice
        Threads.atomic_add!(calls, 1)
        slice.index == 1 && GC.gc(false)
        momentum!(slice)
    end
    for step in 1:OWN_RULE_STEPS
        for i in 1:length(model)
            gradient = grad(model, i)
            for k in eachindex(gradient)
                gradient[k] = cos(1.0f0 * step + k * i + group_rank(group))
            end
        end
        before = calls[]
        backward(mark, model)
        (calls[] > before) == in_backward || error("the rule ran $(calls[] - before) times in a pass")
        step!(optimizer)
        step_count(optimizer) == step || error("$(step_count(optimizer)) steps, not $step")
    end
    check_replicas(model)
    return weights_of(model)
end

# What a pass throws when the rule fails on one rank; parameters are then as they were, and the group goes on.
function own_rule_fails(group, is_here)
    model, broken = own_rule_model(group; progress = :caller), Ref(is_here)
    optimizer = CustomOptimizer(model; rate = 0.1, in_backward = true) do slice
        broken[] && slice.index == 3 && throw(DomainError(slice.index, "mine"))
        slice.value .-= Float32(slice.rate) .* slice.grad
    end
    foreach(i -> grad(model, i) .= 1, 1:length(model))
    before = weights_of(model)
    failure = try
        backward(mark_all, model)
        nothing
    catch e
        e
    end
    weights_of(model) == before || error("a failed pass has changed weights")
    broken[] = false
    foreach(i -> grad(model, i) .= 1, 1:length(model))
    backward(mark_all, model)
    step!(optimizer)
    step_count(optimizer) == 1 && weights_of(model) != before || error("the step behind a failed one")
    check_replicas(model)
    return failure
end

# A hook as a C function of Julia: its bucket's mean.
function own_hook(::Ptr{Cvoid}, handle::Ptr{LibDDP.Low.ddp_bucket})
    allreduce!(LibDDP.Bucket(handle, Dict{Any,Any}()))
    return Int32(0)
end
own_hook_fn() = LibDDP.Low.@ddp_hook_fn(own_hook)

# The mean by that hook of 2, 4, ... over the ranks.
function own_hook_mean(group)
    model = Model(group; progress = :caller)
    add_parameter!(model, "w", zeros(3))
    commit!(hook!(model, own_hook_fn()))
    grad(model, 1) .= 2 * (group_rank(group) + 1)
    backward(mark_all, model)
    return copy(grad(model, 1))
end
