# SPDX-License-Identifier: Apache-2.0
# Train a network on handwritten digits, on any number of ranks: examples/02_train.c in Julia.
#
#   ddprun -n 2 julia --project=. examples/digits.jl [--epochs N] [--checkpoint FILE] [--resume] [--data FILE]
#
# A perceptron with two hidden layers (64-128-64-10) reads 8x8 pixels and names the digit. Read train() first, then learn!(): these
# two are what a program of your own needs. The global batch has 64 samples whatever the number of ranks.
using LibDDP, LibDDP.All
using DelimitedFiles, LinearAlgebra, Printf

const GLOBAL_BATCH = 64

# The network: weights and biases are ours, gradients libddp's. Nothing here knows libddp.
struct Layer
    weight::Matrix{Float32} # out x in
    bias::Vector{Float32}
end

# Small random numbers (He's initialisation), the same as in the C example.
function Layer(inputs::Integer, outputs::Integer, state::Ref{UInt64})
    weight = Matrix{Float32}(undef, outputs, inputs)
    spread = sqrt(6.0f0 / inputs)
    for o in 1:outputs, i in 1:inputs
        state[] = state[] * 0x5851f42d4c957f2d + 0x14057b7ef767814f
        weight[o, i] = spread * (Float32(state[] >> 40) / 8388608.0f0 - 1.0f0)
    end
    return Layer(weight, zeros(Float32, outputs))
end

# All samples of a batch through all layers; gives the inputs of each layer and the values of the last.
function forward(net, x)
    inputs = [x]
    for (i, layer) in enumerate(net)
        y = layer.weight * inputs[end] .+ layer.bias
        push!(inputs, i < length(net) ? max.(y, 0.0f0) : y)
    end
    return inputs
end

# Mean loss (cross-entropy of softmax) and its gradient with respect to the last values.
function loss_of(y, labels)
    e = exp.(y .- maximum(y; dims = 1))
    p = e ./ sum(e; dims = 1)
    loss = -sum(log(p[label+1, b]) for (b, label) in enumerate(labels))
    for (b, label) in enumerate(labels)
        p[label+1, b] -= 1
    end
    return loss, p ./ Float32(length(labels))
end

guesses(y) = [argmax(view(y, :, b)) - 1 for b in 1:size(y, 2)]

function load_digits(path)
    table = readdlm(path, ',', Int)
    test = [i % 5 == 1 for i in 1:size(table, 1)] # every fifth line
    part(rows) = (pixels = permutedims(Float32.(table[rows, 1:64])) ./ 16, labels = table[rows, 65])
    return part(.!test), part(test)
end

# One step on a batch of this rank: gives the loss and the number of right answers.
function learn!(net, model, optimizer, pixels, labels)
    inputs = forward(net, pixels)
    loss, delta = loss_of(inputs[end], labels)
    backward(model) do model
        for l in length(net):-1:1
            weight, bias = 2l - 1, 2l # the indices that add_parameter! gave
            mul!(grad(model, weight), delta, transpose(inputs[l]))
            grad(model, bias) .= vec(sum(delta; dims = 2))
            ready!(model, bias) # complete: libddp may send it while we compute the layers below
            ready!(model, weight)
            delta = (transpose(net[l].weight) * delta) .* (inputs[l] .> 0)
        end
    end
    step!(optimizer) # the gradients are the mean over all ranks, the same bits everywhere, so the step is the same
    return loss, count(guesses(inputs[end]) .== labels)
end

# A short linear warm-up, then down along a cosine.
rate_at(step, steps) = step < 50 ? 0.004 * (step + 1) / 50 : 0.00008 + 0.00392 * 0.5 * (1 + cos(pi * step / steps))

function train(; data, checkpoint, epochs, resume)
    learned, tested = load_digits(data)
    Group() do group # rank and size come from the launcher; started alone, the group has one rank
        random = Ref{UInt64}(1) # ranks need not agree: rank 0's weights reach everybody at commit!
        net = [Layer(64, 128, random), Layer(128, 64, random), Layer(64, 10, random)]
        model = Model(group; first_bucket_bytes = 4096, bucket_bytes = 32768) # tiny; real networks are well served by the defaults
        for (l, layer) in enumerate(net)
            add_parameter!(model, "layer$l.weight", layer.weight)
            add_parameter!(model, "layer$l.bias", layer.bias)
        end
        commit!(model)
        optimizer = Adam(model)
        at = resume ? load_state!(checkpoint; model = model, optimizer = optimizer) : (epoch = 0, step = 0)
        say(text) = group_rank(group) == 0 && println(text)
        say("$(group_size(group)) ranks, $(length(learned.labels)) digits to learn, $(length(tested.labels)) to test")
        sampler = Sampler(group, length(learned.labels))
        batch = div(GLOBAL_BATCH, group_size(group))
        steps, accuracy = epochs * cld(length(sampler), batch), 0.0
        while at.epoch < epochs
            sums = zeros(5) # loss, right, seen; right and seen in the test
            for chosen in Iterators.partition(indices(sampler, at.epoch), batch)
                rate!(optimizer, rate_at(at.step, steps))
                loss, right = learn!(net, model, optimizer, learned.pixels[:, chosen], learned.labels[chosen])
                sums[1:3] .+= (loss, right, length(chosen))
                at = (epoch = at.epoch, step = at.step + 1)
            end
            at = (epoch = at.epoch + 1, step = at.step)
            mine = group_rank(group)+1:group_size(group):length(tested.labels)
            right = count(guesses(forward(net, tested.pixels[:, mine])[end]) .== tested.labels[mine])
            sums[4:5] .+= (right, length(mine))
            reduce_metrics!(group, sums) # sum first, divide afterwards
            accuracy = 100 * sums[4] / sums[5]
            say(@sprintf("epoch %2d  loss %.4f  train %6.2f %%  test %6.2f %%", at.epoch, sums[1] / sums[3], 100 * sums[2] / sums[3], accuracy))
        end
        save_state(checkpoint; model = model, optimizer = optimizer, at...) # every rank calls, rank 0 writes
        check_replicas(model) # are all weights the same on all ranks?
        say(@sprintf("all equal\ntest accuracy %.2f %%; checkpoint: %s", accuracy, checkpoint))
    end
end

function main(arguments)
    chosen = Dict{String,Any}("--epochs" => "20", "--checkpoint" => "digits.safetensors",
        "--data" => joinpath(@__DIR__, "..", "..", "..", "examples", "data", "digits.csv"))
    resume = "--resume" in arguments
    rest = filter(!=("--resume"), arguments)
    for (name, value) in Iterators.partition(rest, 2)
        haskey(chosen, name) || error("The argument $name is not understood.")
        chosen[name] = value
    end
    train(; data = chosen["--data"], checkpoint = chosen["--checkpoint"], epochs = parse(Int, chosen["--epochs"]), resume = resume)
end

BLAS.set_num_threads(1) # as many ranks as cores: each has one
main(ARGS)
