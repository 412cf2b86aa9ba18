# SPDX-License-Identifier: Apache-2.0
# An installed package is without the rest of the sources.
const LAYOUT = joinpath(@__DIR__, "..", "..", "..", "tests", "abi", "layout_lp64.txt")
isfile(LAYOUT) || @info "The layout of structs is not compared: $LAYOUT is not there"

isfile(LAYOUT) && @testset "structs have the layout of C" begin
    compared = 0
    for line in eachline(LAYOUT)
        whole = match(r"^(ddp_\w+) (\d+) bytes$", line)
        part = match(r"^(ddp_\w+)\.(\w+) at (\d+), (\d+) bytes$", line)
        if whole !== nothing
            @test sizeof(getfield(Low, Symbol(whole[1]))) == parse(Int, whole[2])
        elseif part !== nothing
            T = getfield(Low, Symbol(part[1]))
            field = Symbol(part[2] == "local" ? "local_" : part[2]) # a word of Julia's own
            @test fieldoffset(T, Base.fieldindex(T, field)) == parse(Int, part[3])
            @test sizeof(fieldtype(T, field)) == parse(Int, part[4])
            compared += 1
        end
    end
    @test compared > 50
end

@testset "versions agree" begin
    @test Low.ddp_version() == Low.DDP_VERSION
    @test LibDDP.version() == VersionNumber(Low.DDP_VERSION_STRING)
    @test occursin(Low.DDP_VERSION_STRING, LibDDP.build_info())
end

@testset "functions bring their comments" begin
    @test occursin("Collective", string(@doc LibDDP.Low.ddp_group_barrier))
end
