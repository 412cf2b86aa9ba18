# SPDX-License-Identifier: Apache-2.0
struct Broken <: IO end
Base.unsafe_write(::Broken, ::Ptr{UInt8}, ::UInt) = throw(SystemError("the disk is gone"))
Base.readbytes!(::Broken, ::AbstractArray{UInt8}, ::Integer) = throw(SystemError("the disk is gone"))

@testset "a checkpoint restores everything" begin
    mktempdir() do folder
        alone() do group
            weight, table = Float32[1 2 3; 4 5 6], Int64[7, 8]
            model = Model(group)
            add_parameter!(model, "weight", weight)
            @test add_buffer!(model, "table", table) >= 1
            commit!(model)
            sync_buffers!(model)
            check_replicas(model)
            optimizer, ema = Adam(model; rate = 0.25, decoupled = false), EMA(model, 0.5, 0.9)
            parameter_options!(optimizer, 1; weight_decay = 0.1, rate_scale = 2)
            grad(model, 1) .= 1
            step!(optimizer)
            update_averages!(ema)
            metadata!(model, "note", "grüße")
            what = (model = model, optimizer = optimizer, ema = ema)
            path, io = joinpath(folder, "state"), IOBuffer()
            save_state(path; what..., epoch = 3, step = 41)
            save_state(io; what..., epoch = 3, step = 41)
            mine = IOBuffer()
            save_state(mine; alone = true, what..., epoch = 3, step = 41)
            @test take!(mine) == read(path) == take!(copy(io))
            before = parameter_hash(model)
            for source in (path, seekstart(io))
                step!(optimizer)
                weight .= 0
                metadata!(model, "note", nothing)
                @test metadata(model, "note") === nothing
                @test load_state!(source; what...) == (epoch = 3, step = 41, missing = String[], unexpected = String[])
                @test parameter_hash(model) == before && step_count(optimizer) == 1 && metadata(model, "note") == "grüße"
            end
            averaged = swapped(() -> parameter_hash(model), ema, 2)
            @test parameter_hash(model) == before && averaged isa UInt64
            other = Model(group)
            add_parameter!(other, "weight", zero(weight))
            add_parameter!(other, "new", zeros(2))
            fails(() -> load_state!(path; model = other), :MISMATCH, "new")
            found = load_state!(path; model = other, partial = true, alone = true)
            @test found.missing == ["new"] && "table" in found.unexpected
            fails(() -> load_state!(joinpath(folder, "missing"); what...), :IO, "missing")
            steps = mkdir(joinpath(folder, "steps"))
            fails(() -> load_latest!(steps; what...), :NO_CHECKPOINT, "has no checkpoint")
            for step in 1:3
                save_latest(steps; what..., step = step, keep = 2)
            end
            @test filter(startswith("step-"), readdir(steps)) == ["step-000000000002.safetensors", "step-000000000003.safetensors"]
            write(joinpath(steps, "step-000000000003.safetensors"), "damaged")
            newest = load_latest!(steps; what...)
            @test newest.step == 2 && newest.file == joinpath(steps, "step-000000000002.safetensors") && parameter_hash(model) == before
            @test length(newest.skipped) == 1 && occursin("step-000000000003", newest.skipped[1])
            @test_throws SystemError save_state(Broken(); what...)
            @test_throws SystemError load_state!(Broken(); what...)
        end
    end
end

@testset "a sampler shares every index" begin
    parts = [indices(Sampler(; dataset_size = 10, rank = r, size = 3, drop_last = true), 5) for r in 0:2]
    @test allunique(vcat(parts...)) && all(in(1:10), vcat(parts...))
    sampler = Sampler(; dataset_size = 10, rank = 1, size = 3)
    @test length(sampler) == 4 && indices!(zeros(Int64, 2), sampler, 5, 2) == indices(sampler, 5)[2:3]
    @test indices(Sampler(; dataset_size = 4, size = 2, shuffle = false), 0) == [1, 3]
    fails(() -> indices!(zeros(Int64, 9), sampler, 0), :INVALID_ARGUMENT)
    first_of_both = [indices(Sampler(; dataset_size = 9, rank = r, size = 2), 4)[1] for r in 0:1]
    rest = indices(Sampler(; dataset_size = 9, seen = 2), 4)
    @test sort(vcat(first_of_both, rest)) == 1:9
    alone() do group
        @test indices(resumed(Sampler(; dataset_size = 9, rank = 1, size = 2), group, 1), 4) == rest
        @test length(resumed(Sampler(; dataset_size = 9, size = 2), group, 5)) == 0
    end
end

@testset "ranks meet at a store of the caller" begin
    # Alone libddp asks for nothing; with a peer that never comes, the store is used and its exceptions come back.
    values = Dict{String,Vector{UInt8}}()
    store(get) = (set = (key, value) -> (values[key] = value), get = get)
    options = (rank = 1, world_size = 2, rendezvous_timeout_ms = 200)
    fails(() -> Group("store://"; store = store((key, timeout_ms) -> nothing), options...), :TIMED_OUT)
    @test_throws DomainError Group("store://"; store = store((key, timeout_ms) -> throw(DomainError(key))), options...)
end

@testset "the log" begin
    log_level!(:off)
    log_level!(:warning)
    @test_throws ArgumentError log_level!(:loud)
end

@testset "a trace" begin
    mktempdir() do folder
        alone() do group
            path = joinpath(folder, "trace.json")
            @test trace(() -> (barrier(group); 7), group, path; capacity = 128) == 7
            @test occursin("ddp_group_barrier", read(path, String))
            @test_throws DDPError stop_trace(group)
        end
    end
end
