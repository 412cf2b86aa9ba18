# SPDX-License-Identifier: Apache-2.0
# Ranks in processes of their own: this file again, with a role.
const HELPER = joinpath(@__DIR__, "helper.jl")

function with_helper(f, role)
    mktempdir() do folder
        file = joinpath(folder, "meeting")
        command = `$(Base.julia_cmd()) --project=$(Base.active_project()) $HELPER $role $file`
        peer = open(command, "r+")
        try
            f(peer, file)
        finally
            kill(peer, 9)
        end
    end
end

meet(file; options...) = Group("file://$file"; rank = 0, world_size = 2, rendezvous_timeout_ms = 60_000, timeout_ms = 60_000, options...)

@testset "a dead peer is named" begin
    with_helper("dies") do peer, file
        group = meet(file)
        model = Model(group)
        add_parameter!(model, "weight", zeros(Float32, 1 << 20))
        commit!(model)
        id = readline(peer)
        began = time()
        fails(:PEER_FAILED, "rank 1", id) do
            backward(model) do model
                ready!(model, 1)
                kill(peer, 9)
            end
        end
        @test time() - began < 15
        @test group_error(group).status === :PEER_FAILED
        began = time()
        close(group)
        @test time() - began < 3
    end
end

@testset "a program ends with work in flight" begin
    with_helper("returns") do peer, file
        group = meet(file)
        model = Model(group)
        add_parameter!(model, "weight", zeros(Float32, 1 << 20))
        commit!(model)
        @test readline(peer) == "leaving"
        wait(peer)
        @test peer.exitcode == 0 && peer.termsignal == 0 # no crash at the end
        fails(() -> while true barrier(group) end, :ABORTED, "rank 1") # Julia's finalizers ran and said goodbye
    end
end

@testset "an abort comes with its reason" begin
    with_helper("aborts") do peer, file
        group = meet(file)
        fails(() -> while true barrier(group) end, :ABORTED, "the loss is not a number")
    end
end

@testset "other types on another rank" begin
    with_helper("differs") do peer, file
        group = meet(file)
        fails(() -> allreduce!(group, zeros(Float32, 4)), :DIFFERENT_CALLS)
    end
end

# One pass under a hook, in which this rank's gradient is 4.
function hooked(set, group; options...)
    model = Model(group; options...)
    add_parameter!(model, "weight", zeros(1))
    set(model)
    commit!(model)
    grad(model, 1) .= 4
    backward(m -> (ready!(m, 1); pull!(m)), model)
    return copy(grad(model, 1))
end

@testset "collectives of two processes" begin
    with_helper("computes") do peer, file
        group = meet(file)
        @test allreduce!(group, Float32[1, 2, 3]) == [3, 5, 7]
        @test allreduce!(group, [1.0, 5.0], average) == [2, 6]
        @test bcast!(group, [0, 0]; root = 1) == [4, 5]
        @test allgather!(group, zeros(Int32, 2, 2), Int32[1, 2]) == [1 3; 2 4]
        @test reducescatter!(group, zeros(2), [1.0 3; 2 4]) == [2, 4]
        weight = Float64[1 2; 3 4]
        model = Model(group; unused = :allow)
        first = lend!(model, (dense = (weight = weight, bias = zeros(2)),))
        @test first == (dense = (weight = 1, bias = 2),)
        commit!(model)
        grad(model, 1) .= 2
        backward(m -> foreach(i -> ready!(m, i), 2:-1:1), model)
        @test all(==(3), grad(model, 1))
        step!(SGD(model; rate = 1))
        @test weight == [-2 -1; 0 1]
        check_replicas(model)
        uneven = Model(group; divisor = :weights, uneven_inputs = true)
        add_parameter!(uneven, "weight", zeros(1))
        commit!(uneven)
        weight!(uneven, 3)
        grad(uneven, 1) .= 4
        backward(m -> ready!(m, 1), uneven)
        @test grad(uneven, 1) == [3] # (3 * 4 + 1 * 0) / 4
        last_pass!(uneven)
        skip_backward(uneven)
        @test grad(uneven, 1) == [7] && pass_report(uneven) == (contributors = 1, last = true, weight = 1.0, absent = [group_rank(group)])
        fails(() -> backward(m -> ready!(m, 1), uneven), :INVALID_STATE, "no more samples")
        join!(uneven)
        for wire in (:f16, :bf16)
            @test hooked(identity, group; wire = wire) == [3]
        end
        @test hooked(model -> hook!(bucket -> (GC.gc(); allreduce!(bucket)), model), group) == [3]
        fails(() -> hooked(model -> hook!(bucket -> allreduce!(bucket), model), group), :CALLBACK, "the codebook is empty")
        own = zeros(1)
        averaged = Model(group)
        add_parameter!(averaged, "weight", own)
        commit!(averaged)
        own[1] = 4
        backward(m -> ready!(m, 1), averaged; alone = true)
        average_parameters!(averaged)
        @test own == [3]
        check_replicas(uneven)
    end
end

@testset "a rule of one's own within backward, on two ranks" begin
    with_helper("rules") do peer, file
        groups = (meet(file), meet("$file-gloo"; backend = :gloo))
        trained = Any[]
        for group in groups
            for (in_backward, shard) in OWN_RULE_WAYS
                push!(trained, train_own_rule(group; in_backward = in_backward, shard = shard))
            end
            push!(trained, train_own_rule(group; in_backward = true, mark = mark_all_by_threads))
            @test own_rule_fails(group, true) isa DomainError
            @test own_hook_mean(group) == [3, 3, 3]
        end
        @test all(==(trained[1]), trained) # the step outside of backward, over shared memory
        @test [LibDDP.backend(group) for group in groups] == [:SHM, :GLOO]
    end
end

# A training that loses ranks, each `julia helper.jl survives FILE`: the test kills two of three, and the weights of the last are those of a
# replay of who took part in which step. Gradients are multiples of 6 and all factors powers of two, so nothing is rounded.
include("survival.jl")

@testset "the others go on when ranks are killed" begin
    mktempdir() do folder
        file = joinpath(folder, "meeting")
        start(id) = open(`$(Base.julia_cmd()) --project=$(Base.active_project()) $HELPER survives $file $id`, "r+")
        procs = [start(id) for id in 0:2]
        wait_for(peer, word) =
            while true
                line = readline(peer)
                startswith(line, word) && return line
                (isempty(line) && eof(peer)) && error("a rank ended before it said $word")
            end
        try
            wait_for(procs[1], "step 3")
            kill(procs[1], 9)
            wait_for(procs[3], "recovered 2 2")
            wait_for(procs[3], "step 8")
            kill(procs[3], 9)
            wait_for(procs[2], "recovered 3 1")
            words = split(wait_for(procs[2], "end "))
            members = words[3:end]
            @test length(members) == SURVIVAL_STEPS
            @test members[1] == "012" && members[7] == "12" && members[end] == "1"
            @test words[2] == string(replay(members))
            wait(procs[2])
            @test procs[2].exitcode == 0
        finally
            foreach(peer -> kill(peer, 9), procs)
        end
    end
end

@testset "there is nothing to recover" begin
    Group("tcp://127.0.0.1:1"; rank = 0, world_size = 1, recoverable = 1) do group
        fails(() -> recover!(group), :INVALID_STATE, "the group is whole")
        fails(() -> recover!(group; min_ranks = -1), :INVALID_ARGUMENT, "min_ranks")
        fails(() -> rank_progress(group, 1), :INVALID_ARGUMENT, "rank is 1")
        @test_throws ArgumentError recover!(group; patience = 1)
        @test failed_ranks(group) == Int[]
        @test rank_progress(group, 0).pass === nothing && rank_progress(group, 0).call === nothing
        barrier(group)
        @test rank_progress(group, 0).call == "ddp_group_barrier" && !rank_progress(group, 0).in_call
        @test joined_ranks(group) == Int[]
    end
    alone() do group
        abort(group, "enough")
        fails(() -> recover!(group), :INVALID_STATE, "recoverable = 1")
    end
end
