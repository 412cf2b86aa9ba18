# SPDX-License-Identifier: Apache-2.0
@testset "a hook sees the gradients of its buckets" begin
    alone() do group
        model, seen = Model(group; first_bucket_bytes = 64, bucket_bytes = 64), Any[]
        weights = (zeros(Float32, 2, 3), zeros(Float32, 5))
        foreach(i -> add_parameter!(model, "p$i", weights[i]), 1:2)
        kept = Any[]
        hook!(model) do bucket
            flat = contents(bucket)
            push!(kept, flat)
            for (index, gradient) in gradients(bucket)
                @test size(gradient) == size(weights[index])
                gradient .+= index
                push!(seen, index)
            end
            @test LibDDP.is_last(bucket) == (LibDDP.number(bucket) == 2) && any(!iszero, flat)
        end
        commit!(model)
        backward(m -> (ready!(m, 2); pull!(m); ready!(m, 1)), model)
        @test sort(seen) == [1, 2] && all(==(1), grad(model, 1)) && all(==(2), grad(model, 2))
        close(model)
        GC.gc()
        @test all(flat -> all(==(1), filter(!iszero, flat)), kept) # still memory, of the last bucket
        plain = Model(group)
        @test_throws ArgumentError hook!(plain, :fp8)
        add_parameter!(plain, "weight", zeros(2))
        commit!(hook!(hook!(plain, :powersgd), nothing))
        fails(() -> hook!(plain, :powersgd), :INVALID_STATE)
        fails(() -> hook!(Model(group; wire = :bf16), :powersgd), :INVALID_STATE, "wire")
    end
end
