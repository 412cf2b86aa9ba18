# SPDX-License-Identifier: Apache-2.0
"""
    DDPError

A failed call. `status` says what kind, such as `:PEER_FAILED`; `text` is one sentence that names the culprit. The rest is what it is
about, as numbers; what is empty, "" or -1 is not known, or it is not about that. `ranks` of the group and `parameters`, as their indices
from 1, ascending, at most 128, with how many there are in `rank_count` and `parameter_count`; `call`, the collective call that failed as C
names it, of `:DIFFERENT_CALLS` that of the first of the two ranks, and `other_call` that of the second; `bytes_expected` and `bytes_got`
where sizes differ.
"""
struct DDPError <: Exception
    status::Symbol
    text::String
    ranks::Vector{Int}
    rank_count::Int
    parameters::Vector{Int}
    parameter_count::Int
    call::String
    other_call::String
    bytes_expected::Int
    bytes_got::Int
end
DDPError(status::Symbol, text::AbstractString) = DDPError(status, text, Int[], 0, Int[], 0, "", "", -1, -1)

Base.showerror(io::IO, e::DDPError) = print(io, "DDPError(", e.status, "): ", e.text)

function DDPError(code::Int32)
    text = unsafe_string(Low.ddp_last_error()) # before anything that might yield or fail
    T = Low.ddp_error_details
    found = Ref(T(sizeof(T), zeros(Int64, fieldcount(T) - 1)...))
    Low.ddp_get_error_details(found)
    ranks, parameters = list_of_error(Low.ddp_get_error_ranks), list_of_error(Low.ddp_get_error_parameters)
    status = Symbol(replace(unsafe_string(Low.ddp_status_name(code)), "DDP_ERROR_" => ""))
    d = found[]
    return DDPError(status, text, ranks, d.rank_count, parameters .+ 1, d.parameter_count, unsafe_string(Low.ddp_call_name(d.call)),
        unsafe_string(Low.ddp_call_name(d.other_call)), d.bytes_expected, d.bytes_got)
end

function list_of_error(get)
    numbers, count = zeros(Int32, Low.DDP_MAX_ERROR_LIST), Ref{Int32}(0)
    get(numbers, length(numbers), count)
    return Int.(numbers[1:min(count[], length(numbers))])
end

# No yield point lies between a ccall and the fetching of its text, so the text is this call's. (Not true for @threadcall.)
check(code::Int32) = code == Low.DDP_OK ? nothing : throw(DDPError(code))

"""The version of the loaded library."""
version() = VersionNumber(unsafe_string(Low.ddp_version_string()))

"""The version of the experimental parts of the loaded library: it is another one where a part has changed."""
experimental_version() = Int(Low.ddp_experimental_version())

"""One line about the loaded library: version, compiler, instruction sets, modules."""
build_info() = unsafe_string(Low.ddp_build_info())

"""
    log_level!(level)

Which messages go to stderr: `:debug`, `:info`, `:warning` (at first), `:error` or `:off`. With a second and third argument, a pointer to
a C function and its user data, they go there. A Julia function is not possible: messages come from any thread.
"""
function log_level!(level::Symbol, receiver::Ptr{Cvoid} = C_NULL, user_data::Ptr{Cvoid} = C_NULL)
    return check(Low.ddp_set_log(enumerator(:log, level), receiver, user_data))
end

"""
    add_log_listener(level, receiver, user_data = C_NULL)

Give messages of a level and above to a C function too (`ddp_log_listener_fn`), beside the other receivers of the process. Gives a number
for `remove_log_listener`, after which it is not running and not called again.
"""
function add_log_listener(level::Symbol, receiver::Ptr{Cvoid}, user_data::Ptr{Cvoid} = C_NULL)
    number = Ref{Int64}(0)
    check(Low.ddp_add_log_listener(enumerator(:log, level), receiver, user_data, number))
    return number[]
end
remove_log_listener(number::Integer) = check(Low.ddp_remove_log_listener(number))
