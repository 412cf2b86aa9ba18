# SPDX-License-Identifier: Apache-2.0
"""
    EMA(model, decays...)

Running averages of a model's parameters, one for each decay; equal on all ranks.
"""
mutable struct EMA
    handle::Ptr{Low.ddp_ema}
    model::Model
end

function EMA(model::Model, decays::Real...)
    handle = Ref{Ptr{Low.ddp_ema}}(C_NULL)
    check(Low.ddp_ema_create(model.handle, Float64[decays...], length(decays), handle))
    return finalizer(close, EMA(handle[], model))
end

function Base.close(ema::EMA)
    handle, ema.handle = ema.handle, Ptr{Low.ddp_ema}(C_NULL)
    Low.ddp_ema_destroy(handle)
    return nothing
end

"""Take the current parameters into every average. After each step."""
update_averages!(ema::EMA) = check(Low.ddp_ema_update(ema.handle, ema.model.stream))

"""Exchange the parameters with one of the averages; the same call again swaps back."""
swap!(ema::EMA, which::Integer = 1) = check(Low.ddp_ema_swap(ema.handle, which - 1, ema.model.stream))

"""
    swapped(f, ema, which = 1)

Run `f()` while the parameters hold one of the averages.
"""
function swapped(f, ema::EMA, which::Integer = 1)
    swap!(ema, which)
    try
        return f()
    finally
        swap!(ema, which)
    end
end
