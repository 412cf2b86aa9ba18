# SPDX-License-Identifier: Apache-2.0
# Rank 1 of the tests in processes.jl: julia helper.jl ROLE FILE
using LibDDP, LibDDP.All

const role, file = ARGS
const survives = role == "survives"
const id = survives ? parse(Int, ARGS[3]) : 1
group = Group("file://$file"; rank = id, world_size = survives ? 3 : 2, rendezvous_timeout_ms = 60_000, timeout_ms = 60_000,
    recoverable = survives ? 1 : 0)

function lent_model()
    model = Model(group)
    add_parameter!(model, "weight", zeros(Float32, 1 << 20))
    return commit!(model)
end

# Trains until all steps are made, whoever dies.
function survive()
    weight, members = ones(Float32, SURVIVAL_COUNT), String[]
    model = Model(group; bucket_bytes = 8000)
    add_parameter!(model, "w", weight)
    commit!(model)
    sgd = SGD(model; rate = SURVIVAL_RATE, momentum = SURVIVAL_MOMENTUM)
    say(words...) = (println(words...); flush(stdout))
    who() = join(allgather!(group, zeros(Int64, group_size(group)), Int64[id]))
    ids, broken = who(), false
    while broken || step_count(sgd) < SURVIVAL_STEPS
        try
            if broken
                before = (group_rank(group), group_size(group))
                found = recover!(group; wait_ms = 20_000)
                @assert (found.previous_rank, found.previous_size) == before && (found.rank, found.size) == (group_rank(group), group_size(group))
                @assert found.source === nothing || 0 <= found.source < found.size
                @assert isempty(failed_ranks(group))
                @assert found.step == step_count(sgd) && isempty(found.joined) && length(found.renumbered) == found.size
                @assert isdisjoint(found.gone, keys(found.renumbered)) && found.renumbered[before[1]] == group_rank(group)
                say("recovered ", found.generation, " ", found.size)
                ids, broken = who(), false
            end
            step = step_count(sgd)
            resize!(members, step)
            backward(model) do model
                grad(model, 1) .= survival_gradient(id, step)
                sleep(0.02)
                ready!(model, 1)
            end
            step!(sgd)
            push!(members, ids)
            say("step ", step + 1)
        catch e
            LibDDP.group_error(group) === nothing && rethrow()
            @assert !isempty(failed_ranks(group))
            @assert all(rank -> 0 <= rank_progress(group, rank).silent < 60, 0:group_size(group)-1)
            mine = rank_progress(group, group_rank(group))
            @assert startswith(mine.call, "ddp_") && !mine.in_call
            broken = true
        end
    end
    check_replicas(model)
    say("end ", hash_of(weight), " ", join(members, " "))
end

if role == "survives"
    include("survival.jl")
    survive()
elseif role == "rules"
    include("own_rule.jl")
    gloo = Group("file://$file-gloo"; rank = 1, world_size = 2, rendezvous_timeout_ms = 60_000, timeout_ms = 60_000, backend = :gloo)
    for each in (group, gloo)
        for (in_backward, shard) in OWN_RULE_WAYS
            train_own_rule(each; in_backward = in_backward, shard = shard)
        end
        train_own_rule(each; in_backward = true, mark = mark_all_by_threads)
        failure = own_rule_fails(each, false)
        @assert failure isa DDPError && failure.status === :CALLBACK && occursin("rank 0", failure.text)
        own_hook_mean(each)
    end
    readline()
elseif role == "dies"
    lent_model()
    println(getpid())
    flush(stdout)
    readline() # the test kills this process
elseif role == "returns"
    model = lent_model()
    LibDDP.check(LibDDP.Low.ddp_model_begin_backward(model.handle, LibDDP.Low.DDP_PASS_REDUCE))
    ready!(model, 1)
    println("leaving")
elseif role == "aborts"
    abort(group, "the loss is not a number")
    readline()
elseif role == "differs"
    try
        allreduce!(group, zeros(Float64, 4))
    catch e
        e isa DDPError || rethrow()
    end
    readline()
elseif role == "computes"
    allreduce!(group, Float32[2, 3, 4])
    allreduce!(group, [3.0, 7.0], average)
    bcast!(group, [4, 5]; root = 1)
    allgather!(group, zeros(Int32, 2, 2), Int32[3, 4])
    reducescatter!(group, zeros(2), [1.0 5; 2 6])
    model = Model(group; unused = :allow)
    lend!(model, (dense = (weight = zeros(2, 2), bias = zeros(2)),))
    commit!(model)
    grad(model, 1) .= 4
    backward(m -> foreach(i -> ready!(m, i), 2:-1:1), model)
    step!(SGD(model; rate = 1))
    check_replicas(model)
    uneven = Model(group; divisor = :weights, uneven_inputs = true)
    add_parameter!(uneven, "weight", zeros(1))
    commit!(uneven)
    backward(m -> ready!(m, 1), uneven)
    grad(uneven, 1) .= 7
    backward(m -> ready!(m, 1), uneven)
    try
        backward(m -> error("no more samples"), uneven)
    catch e
        e isa ErrorException || rethrow()
    end
    for _ in 1:2
        grad(uneven, 1) .= 1
        backward(m -> ready!(m, 1), uneven)
    end
    join!(uneven)
    codebook(bucket) = error("the codebook is empty")
    for (wire, set) in ((:f16, identity), (:bf16, identity), (0, m -> hook!(allreduce!, m)), (0, m -> hook!(codebook, m)))
        hooked = Model(group; wire = wire)
        add_parameter!(hooked, "weight", zeros(1))
        set(hooked)
        commit!(hooked)
        grad(hooked, 1) .= 2
        try
            backward(m -> (ready!(m, 1); pull!(m)), hooked)
        catch e
            e isa ErrorException || rethrow()
        end
    end
    own = zeros(1)
    averaged = Model(group)
    add_parameter!(averaged, "weight", own)
    commit!(averaged)
    own[1] = 2
    backward(m -> ready!(m, 1), averaged; alone = true)
    average_parameters!(averaged)
    check_replicas(uneven)
    readline()
end
