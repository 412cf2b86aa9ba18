# SPDX-License-Identifier: Apache-2.0
if Base.find_package("Lux") === nothing
    pushfirst!(LOAD_PATH, joinpath(@__DIR__, "stubs"))
end
import Lux
isdefined(Base, :get_extension) || include(joinpath(@__DIR__, "..", "ext", "LibDDPLuxExt.jl"))

@testset "a back end of Lux" begin
    alone() do group
        backend, utils = LibDDP.lux_backend(group), Lux.DistributedUtils
        @test utils.local_rank(backend) == 0 && utils.total_workers(backend) == 1
        from, to = Float32[1, 2], zeros(Float32, 2)
        utils.bcast!(backend, from; root = 0)
        utils.bcast!(backend, from, to)
        @test to == from
        for reduce in (utils.allreduce!, utils.reduce!)
            fill!(to, 0)
            reduce(backend, from, utils.avg)
            reduce(backend, from, to, +)
            @test to == from == [1, 2]
        end
        fails(() -> utils.bcast!(backend, from; root = 5), :INVALID_ARGUMENT)
        state = (norm = (training = Val(true), mean = Float32[1, 2], count = 3), dropout = (on = false, seed = UInt64(7), name = :no, none = nothing))
        @test utils.synchronize!!(backend, state) == state
    end
end
