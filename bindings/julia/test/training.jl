# SPDX-License-Identifier: Apache-2.0
function model_of(group, arrays...; options...)
    model = Model(group; options...)
    for (i, array) in enumerate(arrays)
        add_parameter!(model, "p$i", array)
    end
    return commit!(model)
end

@testset "gradients live where they were asked for" begin
    alone() do group
        model, own, shared = Model(group), zeros(Float32, 2, 3), alloc(group, Float32, 2, 3)
        for (name, grad) in (("library", nothing), ("julia", own), ("group", shared))
            add_parameter!(model, name, rand(Float32, 2, 3), grad)
        end
        fails(() -> grad(model, 1), :INVALID_STATE)
        commit!(model)
        @test size(grad(model, 1)) == (2, 3)
        grad(model, 2) .= 7
        grad(model, 3) .= 8
        @test all(==(7), own) && all(==(8), shared)
        moved = fill(9.0f0, 6)
        set_grad!(model, 2, moved)
        @test pointer(grad(model, 2)) == pointer(moved)
        @test_throws ArgumentError set_grad!(model, 2, zeros(Float32, 5))
        @test_throws ArgumentError set_grad!(model, 2, zeros(Float64, 6))
        fails(() -> set_grad!(model, 1, zeros(Float32, 6)), :INVALID_STATE)
        backward(mark_all, model)
        @test was_used(model, 1)
        @test stats(model).passes == 1 && stats(model).elements == 18
        @test occursin("library", describe_plan(model))
        norm = grad_norm(model)
        scale_grad!(model, 2)
        @test grad_norm(model) == 2 * norm && grad_norm(model, Inf) == 18 && moved[1] == 18
        zero_grad!(model)
        @test iszero(moved)
    end
end

# Arrays of a model and a group that are gone: the array alone, a view, a reshape, a vector, one without dimensions.
function left_over()
    alone() do group
        model = model_of(group, zeros(Float32, 4, 5), fill(1.0), zeros(Float32, 2, 2), zeros(3, 2), zeros(Float32, 0))
        whole, scalar, column, flat = grad(model, 1), grad(model, 2), view(grad(model, 3), :, 2), vec(grad(model, 4))
        @test whole === @inferred(grad(model, 1, Matrix{Float32})) && scalar === @inferred(grad(model, 2, Array{Float64,0}))
        @test_throws TypeError grad(model, 1, Matrix{Float64})
        @test whole isa Matrix{Float32} && scalar isa Array{Float64,0} && isempty(grad(model, 5))
        whole .= 3
        scalar[] = 4
        column .= 5
        flat .= 6
        shared = alloc(group, Float32, 1 << 18)
        shared .= 7
        free!(group, shared)
        backward(mark_all, model)
        close(model)
        return whole, scalar, column, flat, reshape(shared, 1 << 9, 1 << 9)
    end
end

@testset "arrays of the library outlive their owners" begin
    for _ in 1:5
        arrays = left_over()
        GC.gc()
        GC.gc()
        others = [left_over() for _ in 1:3] # would use memory that was freed by mistake
        for (i, array) in enumerate(arrays)
            @test all(==(i + 2), array)
            array .= 9
            @test all(==(9), array)
        end
        @test all(all(==(i + 2), other[i]) for other in others, i in 1:5)
    end
    GC.gc()
    GC.gc()
    @test LibDDP.shown_bytes[] < 10 << 20 # of 20 MiB; those of the last round may still have names
end

@testset "closed models leave no memory" begin
    alone() do group
        weight = zeros(Float32, 1 << 20)
        most = 0
        for _ in 1:300 # of 4 MiB
            model = model_of(group, weight)
            grad(model, 1) .= 1
            close(model)
            most = max(most, LibDDP.shown_bytes[])
        end
        @test most < 600 << 20
    end
end

@testset "complex numbers" begin
    alone() do group
        weight = ComplexF32[1+2im 3; 4 5]
        model = model_of(group, weight, [1.0im])
        grad(model, 1) .= 1im
        @test grad(model, 2) isa Vector{ComplexF64}
        backward(mark_all, model)
        sgd = SGD(model; rate = 1)
        step!(sgd)
        @test weight == [1+1im 3-1im; 4-1im 5-1im]
        @test allreduce!(group, [1.0 + 2im]) == [1 + 2im]
        close(sgd) # a parameter has one optimizer
        own = CustomOptimizer(slice -> slice.value .= slice.index, model)
        step!(own)
        @test all(==(1 + 1im), weight)
    end
end

@testset "what is lent outlives the collector" begin
    alone() do group
        model = Model(group)
        finalized, others = Ref(0), Ref(0)
        big(value, count) = finalizer(_ -> (count[] += 1), fill(Float32(value), 1 << 18))
        add_parameter!(model, "weight", big(1, finalized), big(2, finalized))
        commit!(model)
        optimizer = SGD(model; rate = 0.5)
        for step in 1:3
            GC.gc()
            big(70, others) # would write over memory that was freed by mistake
            backward(mark_all, model)
            step!(optimizer)
        end
        @test all(==(2), grad(model, 1)) && grad_norm(model, Inf) == 2
        GC.gc()
        @test finalized[] == 0 && others[] > 0
        close(optimizer)
        close(model)
        GC.gc()
        GC.gc()
        @test finalized[] >= 1 # what was lent is free again
    end
end

@testset "a lent vector cannot be resized" begin
    alone() do group
        weight = Float32[1, 2]
        model = model_of(group, weight)
        if VERSION < v"1.11"
            @test_throws ErrorException push!(weight, 3)
        end
        close(model)
    end
end

@testset "a pass says what is missing and always ends" begin
    alone() do group
        model = model_of(group, zeros(2), zeros(2))
        fails(() -> backward(m -> ready!(m, 1), model), :INVALID_STATE, "p2")
        fails(() -> backward(m -> ready!(m, 3), model), :INVALID_ARGUMENT)
        fails(() -> backward(m -> unused!(m, 1), model), :INVALID_STATE)
        @test_throws ErrorException backward(m -> error("mine"), model)
        @test backward(m -> (mark_all(m); 42), model) == 42
        backward(mark_all, model; accumulate = true)
        free = model_of(group, zeros(2), zeros(2); unused = :allow)
        @test was_used(free, 1) === nothing
        backward(m -> (ready!(m, 2); unused!(m, 1)), free)
        @test was_used(free, 1) === false && was_used(free, 2) === true
    end
end

@testset "several threads may mark" begin
    alone() do group
        model = model_of(group, (zeros(Float32, 16) for _ in 1:64)...)
        for pass in 1:20
            backward(model) do model
                Threads.@threads for i in 1:length(model)
                    grad(model, i)
                    ready!(model, i)
                end
            end
        end
        @test stats(model).passes == 20
    end
end

@testset "an update of one's own" begin
    alone() do group
        weight, kept = Float32[1, 2], Any[]
        model = model_of(group, weight)
        grad(model, 1) .= 1
        answer = slice -> slice.value .-= Float32(slice.rate) .* slice.grad
        optimizer = CustomOptimizer(model; states = ["seen"]) do slice
            GC.gc()
            slice.state[1] .+= 1
            push!(kept, slice.state[1][1])
            answer(slice)
        end
        rate!(optimizer, 0.5)
        @test rate(optimizer) == 0.5
        step!(optimizer)
        @test weight == [0.5, 1.5] && kept == [1] && step_count(optimizer) == 1
        answer = slice -> throw(DomainError(slice.rate, "mine"))
        @test_throws DomainError step!(optimizer)
        answer = slice -> nothing
        @test step!(optimizer) === nothing
    end
end

@testset "an update of one's own within backward" begin
    alone() do group
        refused = try
            CustomOptimizer(identity, model_of(group, zeros(2)); in_backward = true)
        catch e
            e
        end
        @test refused isa ArgumentError && occursin("Model(group; progress = :caller)", refused.msg)
        expected = train_own_rule(group)
        @test expected == train_own_rule(group; in_backward = true)
        @test expected == train_own_rule(group; in_backward = true, mark = mark_all_by_threads)
        @test own_rule_fails(group, true) isa DomainError
        weight = Float32[1, 2]
        model = model_of(group, weight; progress = :caller)
        @test value(model, 1) === weight
        CustomOptimizer(slice -> slice.value .-= slice.grad, model; rate = 1, in_backward = true) # forgotten, not closed
        grad(model, 1) .= 1
        backward(model) do model
            GC.gc()
            ready!(model, 1)
        end
        @test weight in ([0, 1], [1, 2]) # closed by the collector, or not
        waits = Model(group; progress = :caller)
        add_parameter!(waits, "w", weight)
        CustomOptimizer(slice -> throw(DomainError(0, "mine")), commit!(waits); in_backward = true, whole_tensors = true)
        @test_throws DomainError backward(mark_all, waits) # behind the last bucket with a piece of the tensor
        hooked = Model(group; progress = :caller)
        add_parameter!(hooked, "w", weight)
        commit!(hook!(hooked, own_hook_fn()))
        grad(hooked, 1) .= 3
        backward(mark_all, hooked)
        @test grad(hooked, 1) == [3, 3]
    end
end

@testset "rules that give way to other tasks end in any order" begin
    places = [Channel{Bool}(1) for _ in 1:2]
    groups = [Group("local://alone"; rank = 0, world_size = 1) for _ in 1:2]
    inside, threads = Channel{Int}(2), Vector{Bool}(undef, 2)
    steps = map(1:2) do k
        model = model_of(groups[k], Float32[1, 2])
        rule = CustomOptimizer(model) do slice
            before = Threads.threadid()
            put!(inside, k)
            take!(places[k])
            threads[k] = Threads.threadid() == before
        end
        task = Task(() -> (backward(mark_all, model); step!(rule)))
        schedule(task)
        @test take!(inside) == k
        task
    end
    for k in 1:2 # the first ends first, the other one is still in its rule
        put!(places[k], true)
        wait(steps[k])
    end
    @test threads == [true, true]
    foreach(barrier, groups)
    foreach(close, groups)
end

@testset "parts of a batch" begin
    alone(; virtual_ranks = 3) do group
        @test parts(group) == 0:2 && total_parts(group) == 3
        model = Model(group)
        w, g = zeros(Float32, 1), zeros(Float32, 1)
        add_parameter!(model, "w", w, g)
        commit!(model)
        for part in parts(group)
            backward(model; part = part) do model
                g[1] = 1.0f0 / (3 + part)
                ready!(model, 1)
            end
        end
        @test g[1] === ((1.0f0 / 3 + 1.0f0 / 4) + 1.0f0 / 5) / 3
        @test reduce_part_metrics!(group, [1.0 1.0 1.0; 0.0 1.0 2.0]) == [3.0, 3.0]
        @test_throws ArgumentError reduce_part_metrics!(group, zeros(1, 2))
        @test_throws ArgumentError backward(identity, model; part = 0, alone = true)
        @test length(Sampler(group, 30; part = 1)) == 10
        close(model)
    end
    @test part_key(1, 2, 3) == 7367606758917324626
    fails(() -> part_key(1, -1, 0), :INVALID_ARGUMENT, "step is -1")
end

@testset "batch normalisation" begin
    alone() do group
        x, y = Float64[1 3; 2 6], zeros(2, 2) # two channels, two samples
        norm = BatchNorm(2; epsilon = 0, momentum = 1, running_mean = zeros(2), running_var = zeros(2))
        @test forward!(norm, group, y, x) == [-1 1; -1 1]
        @test norm.running_mean == [2, 4] && norm.running_var == [2, 8] && norm.count == 2
        dbias = zeros(2)
        @test all(abs.(backward!(norm, group, zeros(2, 2), ones(2, 2), x; dbias = dbias)) .< 1e-12)
        @test dbias == [2, 2]
    end
end

@testset "objects say what they are" begin
    alone() do group
        model = Model(group)
        add_parameter!(model, "w", zeros(Float32, 3, 4))
        @test string(group) == "Group(rank 0 of 1, AUTO)"
        @test string(model) == "Model(1 parameters, 12 elements, not committed)"
        commit!(model)
        sgd = SGD(model; rate = 0.25)
        @test string(model) == "Model(1 parameters, 12 elements, committed)"
        @test string(sgd) == "Optimizer(rate 0.25, 0 steps)"
        foreach(close, (sgd, model, group))
        @test string.((group, model, sgd)) == ("Group(closed)", "Model(closed)", "Optimizer(closed)")
    end
    @test occursin("learning rate (default 0.01)", string(@doc LibDDP.Low.ddp_sgd_options)) # options bring their comments
end
