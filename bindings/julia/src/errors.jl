# SPDX-License-Identifier: Apache-2.0
"""
    DDPError

A failed call. `status` says what kind, such as `:PEER_FAILED`; `text` is one sentence that names the culprit.
"""
struct DDPError <: Exception
    status::Symbol
    text::String
end

Base.showerror(io::IO, e::DDPError) = print(io, "DDPError(", e.status, "): ", e.text)

function DDPError(code::Int32)
    text = unsafe_string(Low.ddp_last_error()) # before anything that might yield or fail
    return DDPError(Symbol(replace(unsafe_string(Low.ddp_status_name(code)), "DDP_ERROR_" => "")), text)
end

# No yield point lies between a ccall and the fetching of its text, so the text is this call's. (Not true for @threadcall.)
check(code::Int32) = code == Low.DDP_OK ? nothing : throw(DDPError(code))

"""The version of the loaded library."""
version() = VersionNumber(unsafe_string(Low.ddp_version_string()))

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
