# SPDX-License-Identifier: Apache-2.0
@testset "collectives work on arrays and views" begin
    alone() do group
        @test group_rank(group) == 0 && group_size(group) == 1
        for T in (Float32, Float64, Float16, Int32, Int64, UInt8)
            a = T[1 3; 2 4]
            @test allreduce!(group, a, max) === a
        end
        whole = Float32.(reshape(1:12, 3, 4))
        @test allreduce!(group, view(whole, :, 2:3), average) == whole[:, 2:3]
        @test bcast!(group, view(whole, :, 1)) == whole[:, 1]
        @test allgather!(group, zeros(3, 1), [1.0, 2, 3]) == reshape([1, 2, 3], 3, 1)
        @test reducescatter!(group, zeros(3), [1.0, 2, 3], +) == [1, 2, 3]
        @test reduce_metrics!(group, [1.0, 2], min) == [1, 2]
        @test barrier(group) === nothing
        @test backend(group) in (:AUTO, :LOCAL)
        @test group_error(group) === nothing
    end
end

@testset "what libddp would misread is refused" begin
    alone() do group
        square = rand(Float32, 4, 4)
        @test_throws ArgumentError allreduce!(group, transpose(square))
        @test_throws ArgumentError allreduce!(group, view(square, 1:2, :))
        @test_throws ArgumentError allreduce!(group, view(square, 2, :))
        @test_throws ArgumentError allreduce!(group, 1:3)
        @test_throws ArgumentError allreduce!(group, Complex{Int32}[1, 2])
        @test_throws ArgumentError allreduce!(group, UInt64[1, 2])
        @test_throws ArgumentError bcast!(group, Any[1, 2])
        @test_throws ArgumentError alloc(group, Float64, 1 << 40, 1 << 40)
        @test_throws ArgumentError alloc(group, Float64, -1, -1)
        @test_throws ArgumentError allreduce!(group, BigFloat[1, 2])
        @test_throws ArgumentError allreduce!(group, square, -)
        @test_throws ArgumentError allreduce!(group, zeros(Float32, ntuple(_ -> 1, 9)...))
        @test_throws ArgumentError abort(group, "a\0b")
        @test_throws ArgumentError Model(group; no_such_option = 1)
        @test_throws ArgumentError Model(group; unused = :sometimes)
        @test allreduce!(group, view(square, 1:1, 1:1)) == square[1:1, 1:1]
        @test isempty(allreduce!(group, Float32[]))
    end
end

@testset "a wrong type of parameter is named" begin
    alone() do group
        model = Model(group)
        fails(() -> add_parameter!(model, "table", Int32[1, 2]), :NOT_SUPPORTED, "table")
        fails(() -> add_parameter!(model, "weight", zeros(Float32, 2), zeros(Float64, 2)), :INVALID_ARGUMENT, "weight")
        fails(() -> add_parameter!(model, "weight", zeros(Float32, 2), zeros(Float32, 3)), :INVALID_ARGUMENT, "weight")
        @test add_parameter!(model, "weight", zeros(Float32, 2)) == 1
        fails(() -> add_parameter!(model, "weight", zeros(Float32, 2)), :INVALID_ARGUMENT, "weight")
        @test length(model) == 1
    end
end

@testset "a closed group answers with an error" begin
    group = Group("local://alone"; rank = 0, world_size = 1)
    model = Model(group)
    @test isopen(group) && isopen(model)
    close(group)
    close(group)
    @test !isopen(group) && group_rank(group) == -1
    fails(() -> barrier(group), :INVALID_ARGUMENT, "the group is closed")
    fails(() -> Model(group), :INVALID_ARGUMENT, "the group is closed")
    fails(() -> commit!(model), :INVALID_STATE)
    close(model)
    fails(() -> commit!(model), :INVALID_ARGUMENT, "the model is closed")
    @test occursin("INVALID_ARGUMENT", sprint(showerror, try barrier(group) catch e e end))
end

@testset "memory of the group is an array until it is freed" begin
    alone() do group
        a = alloc(group, Float64, 2, 3)
        @test a == zeros(2, 3) && a isa Matrix{Float64}
        a .= [1 2 3; 4 5 6]
        @test a * [1.0, 1, 1] == [6, 15]
        b = alloc(group, UInt8, 5)
        fails(() -> share!(group, zeros(1 << 20)), :NOT_SUPPORTED, "share no memory")
        fails(() -> unshare!(group, zeros(1 << 20)), :INVALID_ARGUMENT, "ddp_group_unshare")
        free!(group, a)
        fails(() -> free!(group, a), :INVALID_ARGUMENT, "freed already")
        close(group)
        @test a == [1 2 3; 4 5 6] && b == zeros(5) # as long as somebody has them
        finalize(a)
        finalize(b)
    end
end
