# SPDX-License-Identifier: Apache-2.0
@testset "steps clip, skip and scale" begin
    alone() do group
        weight = Float64[1, 2]
        model = model_of(group, weight)
        sgd = SGD(model; rate = 1, max_norm = 1, nonfinite = :skip)
        grad(model, 1) .= (3, 4)
        step!(sgd)
        @test grad_norm(sgd) == 5 && isapprox(weight, [0.4, 1.2]; atol = 1e-5)
        kept = copy(weight)
        grad(model, 1)[1] = NaN
        step!(sgd)
        @test weight == kept && skipped_count(sgd) == 1
        loss_scale!(sgd; initial = 1024)
        @test loss_scale(sgd) == 1024
        grad(model, 1) .= (3, 4)
        @test clip_grad_norm!(model, 1) == 5 && isapprox(grad(model, 1), [0.6, 0.8]; atol = 1e-5)
        clip_grad_value!(model, 0.5)
        @test grad(model, 1) == [0.5, 0.5]
        fused = model_of(group, zeros(4))
        adam = Adam(fused; shard = true, in_backward = true)
        backward(mark_all, fused)
        @test step!(adam) === nothing
    end
end

@testset "values that libddp keeps" begin
    alone() do group
        weight = Float64[1 2; 3 4]
        model = Model(group; own_values = true)
        add_parameter!(model, "weight", weight)
        @test value(model, 1) === weight
        commit!(model)
        weight .= NaN
        kept = value(model, 1)
        @test kept == [1 2; 3 4]
        sgd = SGD(model; rate = 1)
        grad(model, 1) .= 1
        step!(sgd)
        @test kept == [0 1; 2 3]
    end
end

@testset "rows of a table" begin
    alone() do group
        @test allreduce_rows(group, [7, 3, 7], Float32[1 5 10; 2 6 20]) == ([3, 7], Float32[5 11; 6 22])
    end
end

@testset "PowerSGD" begin
    alone() do group
        options = (start_pass = 0, min_compression_rate = 1)
        for set in (m -> hook!(m, :powersgd; options...), m -> hook!(b -> (@test LibDDP.is_used(b, 1); allreduce_as!(b, :powersgd; options...)), m))
            model = Model(group)
            add_parameter!(model, "weight", zeros(8, 8))
            set(model)
            commit!(model)
            grad(model, 1) .= (1:8) * (1:8)'
            backward(mark_all, model)
            @test grad(model, 1) ≈ (1:8) * (1:8)'
        end
    end
end
