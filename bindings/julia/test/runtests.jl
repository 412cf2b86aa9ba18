# SPDX-License-Identifier: Apache-2.0
# julia --project=bindings/julia bindings/julia/test/runtests.jl    (DDP_LIBRARY says where the library lies)
using LibDDP, LibDDP.All
using Test
using Libdl

const Low = LibDDP.Low

alone(f; options...) = Group(f, "local://alone"; rank = 0, world_size = 1, options...)

# The error of a call that must fail, with this status, naming these words.
function fails(f, status, words...)
    failure = try
        f()
        nothing
    catch e
        e
    end
    @test failure isa DDPError && failure.status === status
    for word in words
        @test failure isa DDPError && occursin(word, failure.text)
    end
end

include("own_rule.jl")

@testset "LibDDP" begin
    include("generated.jl")
    include("arrays.jl")
    include("training.jl")
    include("hooks.jl")
    include("steps.jl")
    include("states.jl")
    include("requests.jl")
    include("processes.jl")
    include("lux.jl")
end
