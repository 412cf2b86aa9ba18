# SPDX-License-Identifier: Apache-2.0
"""
    Outer(model; every = 100, overlap = 0, rate = 0.7, momentum = 0.9, keep = 0, fragments = 1, nesterov = 1, bits = 32, error_feedback = 1)

The outer optimizer of a model whose passes are local (DiLoCo): for training over slow links. The keywords are the fields of `ddp_outer_options`.
"""
mutable struct Outer
    handle::Ptr{Low.ddp_outer}
    model::Model
end

function Outer(model::Model; changes...)
    given = Ref(options(Low.ddp_outer_options, Low.ddp_outer_options_init; changes...))
    handle = Ref{Ptr{Low.ddp_outer}}(C_NULL)
    check(Low.ddp_outer_create(model.handle, given, handle))
    return finalizer(close, Outer(handle[], model))
end

function Base.close(outer::Outer)
    handle, outer.handle = outer.handle, Ptr{Low.ddp_outer}(C_NULL)
    Low.ddp_outer_destroy(handle)
    return nothing
end

"""After each step of the rank's own optimizer: begin the exchanges that are due, take what others have brought. Collective."""
step!(outer::Outer) = check(Low.ddp_outer_step(outer.handle))

"""Exchange everything at once; afterwards the replicas are equal. Before evaluation and checkpoints. Collective."""
sync!(outer::Outer) = check(Low.ddp_outer_sync(outer.handle))

"""Numbers of the exchanges, named as in `LibDDP.Low.ddp_outer_stats`."""
function stats(outer::Outer)
    T = Low.ddp_outer_stats
    found = Ref(T(sizeof(T), zeros(Int64, fieldcount(T) - 1)...))
    check(Low.ddp_outer_get_stats(outer.handle, found))
    return report(found[])
end
