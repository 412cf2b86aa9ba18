# Rank 1 of the tests in processes.jl: julia helper.jl ROLE FILE
using LibDDP

const role, file = ARGS
group = Group("file://$file"; rank = 1, world_size = 2, rendezvous_timeout_ms = 60_000, timeout_ms = 60_000)

function lent_model()
    model = Model(group)
    add_parameter!(model, "weight", zeros(Float32, 1 << 20))
    return commit!(model)
end

if role == "dies"
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
