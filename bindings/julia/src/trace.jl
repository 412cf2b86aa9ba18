# SPDX-License-Identifier: Apache-2.0
# Traces.

"""
    start_trace(group, path = ""; capacity)
    stop_trace(group)
    trace(f, group, path = ""; capacity)

Record what all ranks do and when, until `stop_trace` writes the file `path` (rank 0's counts), which Perfetto opens; with a function, until that
returns. Of the events of this rank the newest `capacity` are kept (default 65,536). Collective.
"""
function start_trace(group::Group, path::AbstractString = ""; changes...)
    chosen = Ref(options(Low.ddp_trace_options, Low.ddp_trace_options_init; changes...))
    check(Low.ddp_group_start_trace(group.handle, path, chosen))
end

stop_trace(group::Group) = check(Low.ddp_group_stop_trace(group.handle))

function trace(f::Function, group::Group, path::AbstractString = ""; changes...)
    start_trace(group, path; changes...)
    result = f()
    stop_trace(group)
    return result
end

@doc (@doc start_trace) stop_trace
@doc (@doc start_trace) trace
