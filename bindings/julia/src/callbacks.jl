# SPDX-License-Identifier: Apache-2.0
# Julia functions that libddp calls, all of them on the thread and inside the call that they belong to. Nothing may be thrown
# through C: an exception is kept, the library ends its call, and the call throws the exception.

mutable struct Callback
    f::Any
    cause::Any # of the last call that failed, or nothing
    Callback(f) = new(f, nothing)
end

# Runs `body(f)`; gives what it returned, or `failed` after an exception. It may give way to other tasks (sleep, wait, a lock). C's frames are on this
# task's stack and belong to this thread, so meanwhile the task must not move to another one.
function guarded(body, user::Ptr{Cvoid}, failed)
    callback = unsafe_pointer_to_objref(user)::Callback
    task = current_task()
    sticky, task.sticky = task.sticky, true
    try
        return body(callback.f)
    catch e
        callback.cause === nothing && (callback.cause = e)
        return failed
    finally
        task.sticky = sticky
    end
end

# The C call, with the callback's address as user data. `call` returns a status.
function with_callback(call, callback::Callback)
    callback.cause = nothing
    code = GC.@preserve callback call(pointer_from_objref(callback))
    return check(code, callback)
end

# As check(code), but an exception of the callback stands in the place of the error that came of it.
function check(code::Integer, callback::Callback)
    cause, callback.cause = callback.cause, nothing
    code == Low.DDP_OK && return nothing
    failure = DDPError(code)
    throw(cause === nothing ? failure : cause)
end

function on_store_set(user::Ptr{Cvoid}, key::Ptr{UInt8}, value::Ptr{Cvoid}, bytes::Int64)
    return guarded(user, Int32(1)) do store
        store.set(unsafe_string(key), copy(unsafe_wrap(Array, Ptr{UInt8}(value), bytes)))
        Int32(0)
    end
end

function on_store_get(user::Ptr{Cvoid}, key::Ptr{UInt8}, value::Ptr{Cvoid}, capacity::Int64, timeout_ms::Int64, out_bytes::Ptr{Int64})
    return guarded(user, Int32(2)) do store
        found = store.get(unsafe_string(key), timeout_ms)
        found === nothing && return Int32(1)
        length(found) <= capacity || error("the value of $(unsafe_string(key)) has $(length(found)) bytes, at most $capacity are expected")
        copyto!(unsafe_wrap(Array, Ptr{UInt8}(value), capacity), 1, found, 1, length(found))
        unsafe_store!(out_bytes, length(found))
        Int32(0)
    end
end

function on_update(user::Ptr{Cvoid}, slice::Ptr{Low.ddp_update_slice})
    return guarded(user, Int32(1)) do f
        f(unsafe_load(slice))
        Int32(0)
    end
end

function on_write(user::Ptr{Cvoid}, data::Ptr{Cvoid}, bytes::Int64)
    return guarded(user, Int32(1)) do io
        unsafe_write(io, Ptr{UInt8}(data), UInt(bytes))
        Int32(0)
    end
end

function on_read(user::Ptr{Cvoid}, data::Ptr{Cvoid}, capacity::Int64)
    return guarded(user, Int64(-1)) do io
        Int64(readbytes!(io, unsafe_wrap(Array, Ptr{UInt8}(data), capacity), capacity))
    end
end

# Addresses for C, looked up when they are used: an address must not end in a precompiled file.
store_set_fn() = Low.@ddp_store_set_fn(on_store_set)
store_get_fn() = Low.@ddp_store_get_fn(on_store_get)
update_fn() = Low.@ddp_update_fn(on_update)
write_fn() = Low.@ddp_write_fn(on_write)
read_fn() = Low.@ddp_read_fn(on_read)
