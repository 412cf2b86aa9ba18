# SPDX-License-Identifier: Apache-2.0
# The training of processes.jl that loses ranks, and what its weights must be. Tested by processes.jl.
const SURVIVAL_STEPS, SURVIVAL_COUNT, SURVIVAL_RATE, SURVIVAL_MOMENTUM = 12, 5000, 0.0625, 0.5

survival_gradient(id, step) = Float32[6 * ((7id + 3step + i) % 11 - 5) for i in 0:SURVIVAL_COUNT-1]

hash_of(values) = foldl((hash, bits) -> (hash ⊻ bits) * 0x00000100000001b3, reinterpret(UInt32, values); init = 0xcbf29ce484222325)

function replay(members)
    value, momentum = ones(Float32, SURVIVAL_COUNT), zeros(SURVIVAL_COUNT)
    for (step, ids) in enumerate(members)
        mean = sum(Float64.(survival_gradient(parse(Int, id), step - 1)) for id in ids) / length(ids)
        momentum = SURVIVAL_MOMENTUM * momentum + mean
        value -= Float32.(SURVIVAL_RATE * momentum)
    end
    return hash_of(value)
end
