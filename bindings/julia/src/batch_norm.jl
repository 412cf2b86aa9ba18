# SPDX-License-Identifier: Apache-2.0
"""
    BatchNorm(channels; weight, bias, running_mean, running_var, options...)

Batch normalisation over the samples of all ranks. Arrays to normalise have the size (..., channels, samples). The arrays `weight` and
`bias`, `running_mean` and `running_var` may be left out. Options are the fields of `LibDDP.Low.ddp_batch_norm_options`.
"""
mutable struct BatchNorm
    options::Low.ddp_batch_norm_options
    weight::Union{AbstractVector,Nothing}
    bias::Union{AbstractVector,Nothing}
    running_mean::Union{AbstractVector,Nothing}
    running_var::Union{AbstractVector,Nothing}
    saved_mean::Vector{Float64}
    saved_invstd::Vector{Float64}
    count::Int64 # values per channel over all ranks, of the last forward!
end

function BatchNorm(channels::Integer; weight = nothing, bias = nothing, running_mean = nothing, running_var = nothing, changes...)
    chosen = options(Low.ddp_batch_norm_options, Low.ddp_batch_norm_options_init; changes...)
    return BatchNorm(chosen, weight, bias, running_mean, running_var, zeros(channels), zeros(channels), 0)
end

"""
    forward!(norm, group, y, x)

Normalise `x` into `y`, which may be `x` itself when no backward follows. Collective when training.
"""
function forward!(norm::BatchNorm, group::Group, y::AbstractArray, x::AbstractArray)
    count = Ref{Int64}(0)
    GC.@preserve norm y x check(
        Low.ddp_batch_norm_forward(
            group.handle, Ref(norm.options), optional(x), optional(norm.weight), optional(norm.bias), optional(norm.running_mean),
            optional(norm.running_var), optional(y), optional(norm.saved_mean), optional(norm.saved_invstd), count, group.stream,
        ),
    )
    norm.count = count[]
    return y
end

"""
    backward!(norm, group, dx, dy, x; dweight = nothing, dbias = nothing)

The gradients of `x` over the samples of all ranks, and this rank's share of those of weight and bias. `dx` may be `dy` itself, or `nothing`.
Collective when training.
"""
function backward!(norm::BatchNorm, group::Group, dx, dy::AbstractArray, x::AbstractArray; dweight = nothing, dbias = nothing)
    GC.@preserve norm dx dy x dweight dbias check(
        Low.ddp_batch_norm_backward(
            group.handle, Ref(norm.options), optional(dy), optional(x), optional(norm.weight), optional(norm.saved_mean),
            optional(norm.saved_invstd), norm.count, optional(dx), optional(dweight), optional(dbias), group.stream,
        ),
    )
    return dx
end
