# SPDX-License-Identifier: Apache-2.0
# The Julia port of tests/bindings/same_bits.c; tests/bindings/README.md describes the program. Run: ddprun -n 2 julia test/same_bits.jl
#
# Julia never fuses a multiplication and an addition by itself. Its arrays are column-major, so w1[j, i] here is w1[i, j] there.
using LibDDP, LibDDP.All
using Printf

const INPUTS, HIDDEN, OUTPUTS, SAMPLES, BATCH, EPOCHS = 8, 16, 4, 96, 8, 10

# From -1 to below 1, exact in Float32.
function next_number!(state::Ref{UInt32})
    state[] = state[] * 0x0019660d + 0x3c6ef35f
    return (Float32(state[] >> 16) - 32768.0f0) / 32768.0f0
end

struct Network
    w1::Matrix{Float32}
    b1::Vector{Float32}
    w2::Matrix{Float32}
    b2::Vector{Float32}
    w1_grad::Matrix{Float32}
    w2_grad::Matrix{Float32}
    x::Matrix{Float32}
    t::Matrix{Float32}
end

function Network(rank::Integer)
    net = Network(zeros(Float32, INPUTS, HIDDEN), zeros(Float32, HIDDEN), zeros(Float32, HIDDEN, OUTPUTS), zeros(Float32, OUTPUTS),
        zeros(Float32, INPUTS, HIDDEN), zeros(Float32, HIDDEN, OUTPUTS), zeros(Float32, INPUTS, SAMPLES), zeros(Float32, OUTPUTS, SAMPLES))
    state = Ref{UInt32}(1)
    for s in 1:SAMPLES
        for i in 1:INPUTS
            net.x[i, s] = next_number!(state)
        end
        for o in 1:OUTPUTS
            net.t[o, s] = next_number!(state) * 0.5f0
        end
    end
    state[] = 7 + rank # rank 0's weights reach everybody at commit!
    for a in (net.w1, net.w2), i in eachindex(a)
        a[i] = next_number!(state) * 0.5f0
    end
    return net
end

# One sample, forward and backward: adds to the gradients, gives the squared error.
function learn!(net::Network, b1_grad, b2_grad, sample, scale)
    h, d, loss = zeros(Float32, HIDDEN), zeros(Float32, OUTPUTS), 0.0
    for i in 1:HIDDEN
        h[i] = net.b1[i]
        for j in 1:INPUTS
            h[i] = h[i] + net.w1[j, i] * net.x[j, sample]
        end
        h[i] < 0 && (h[i] = 0)
    end
    for o in 1:OUTPUTS
        y = net.b2[o]
        for i in 1:HIDDEN
            y = y + net.w2[i, o] * h[i]
        end
        miss = y - net.t[o, sample]
        loss = loss + Float64(miss) * Float64(miss)
        d[o] = miss * scale
    end
    for o in 1:OUTPUTS
        b2_grad[o] = b2_grad[o] + d[o]
        for i in 1:HIDDEN
            net.w2_grad[i, o] = net.w2_grad[i, o] + d[o] * h[i]
        end
    end
    for i in 1:HIDDEN
        back = 0.0f0
        for o in 1:OUTPUTS
            back = back + net.w2[i, o] * d[o]
        end
        h[i] > 0 || (back = 0.0f0)
        b1_grad[i] = b1_grad[i] + back
        for j in 1:INPUTS
            net.w1_grad[j, i] = net.w1_grad[j, i] + back * net.x[j, sample]
        end
    end
    return loss
end

# The share of one part of a step, in two passes, of which only the second of the last part communicates.
function work!(net, model, chosen, part)
    b1_grad, b2_grad = grad(model, 2), grad(model, 4)
    scale, half, loss = 1.0f0 / Float32(length(chosen)), div(length(chosen), 2), 0.0
    for (some, pass) in ((chosen[1:half], (accumulate = true,)), (chosen[half+1:end], (part = part,)))
        backward(model; pass...) do model
            for sample in some
                loss = loss + learn!(net, b1_grad, b2_grad, sample, scale)
            end
            foreach(index -> ready!(model, index), 4:-1:1)
        end
    end
    return loss
end

function finish_step!(model, sgd, ema)
    norm = grad_norm(model)
    norm > 0.5 && scale_grad!(model, 0.5 / norm)
    LibDDP.step!(sgd)
    update_averages!(ema)
end

function train!(group, net, model, sgd, ema)
    mine = parts(group)
    samplers = [Sampler(group, SAMPLES; part = part, seed = 3) for part in mine]
    sums = zeros(2, length(mine))
    for epoch in 0:EPOCHS-1
        sums .= 0
        shares = [indices(sampler, epoch) for sampler in samplers]
        for batch in Iterators.partition(1:length(samplers[1]), BATCH)
            zero_grad!(model)
            for (i, part) in enumerate(mine)
                sums[1, i] = sums[1, i] + work!(net, model, shares[i][batch], part)
                sums[2, i] = sums[2, i] + length(batch)
            end
            finish_step!(model, sgd, ema)
        end
        reduce_part_metrics!(group, sums)
    end
    return sums[1, 1] / sums[2, 1]
end

Group(; virtual_ranks = parse(Int, get(ENV, "SAME_BITS_PARTS", "0"))) do group
    net = Network(group_rank(group))
    model = Model(group; first_bucket_bytes = 256, bucket_bytes = 512)
    add_parameter!(model, "w1", net.w1, net.w1_grad)
    add_parameter!(model, "b1", net.b1)
    add_parameter!(model, "w2", net.w2, net.w2_grad)
    add_parameter!(model, "b2", net.b2)
    commit!(model)
    sgd = SGD(model; rate = 0.0625, momentum = 0.875)
    ema = EMA(model, 0.75)
    loss = train!(group, net, model, sgd, ema)
    parameters = parameter_hash(model)
    averages = swapped(() -> parameter_hash(model), ema)
    @printf("rank %d of %d: parameters %016x averages %016x loss %016x\n", group_rank(group), group_size(group), parameters, averages,
        reinterpret(UInt64, loss))
    barrier(group)
end
