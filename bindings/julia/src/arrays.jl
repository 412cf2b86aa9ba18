# SPDX-License-Identifier: Apache-2.0
# What libddp may use of Julia's arrays, and Julia of libddp's.

const ELEMENTS = (Float32, Float64, Float16, Int32, Int64, UInt8, Complex{Float32}, Complex{Float64})

dtype(::Type{Float32}) = Low.DDP_F32
dtype(::Type{Float64}) = Low.DDP_F64
dtype(::Type{Float16}) = Low.DDP_F16
dtype(::Type{Int32}) = Low.DDP_I32
dtype(::Type{Int64}) = Low.DDP_I64
dtype(::Type{UInt8}) = Low.DDP_U8
dtype(::Type{Complex{Float32}}) = Low.DDP_C64
dtype(::Type{Complex{Float64}}) = Low.DDP_C128
function dtype(::Type{T}) where {T}
    (nameof(T) === :BFloat16 && sizeof(T) == 2) && return Low.DDP_BF16 # of BFloat16s.jl or Core
    throw(ArgumentError("libddp has no tensors of $T: use Float32, Float64, Float16, BFloat16, Int32, Int64, UInt8, ComplexF32 or ComplexF64"))
end

# Where an array's memory is. A package for another device adds methods for its arrays.
address(a::StridedArray) = Ptr{Cvoid}(pointer(a))
address(a::AbstractArray) = throw(ArgumentError("a $(typeof(a)) has no memory of its own that could be lent; copy it first"))
device(::AbstractArray) = (Low.DDP_CPU, Int32(0))

# Are the elements one after another, in Julia's order? Dimensions of one element may have any stride.
function is_dense(a::AbstractArray)
    isempty(a) && return true
    expected = 1
    for d in 1:ndims(a)
        size(a, d) == 1 && continue
        stride(a, d) == expected || return false
        expected *= size(a, d)
    end
    return true
end

# C's description of an array. The caller keeps the array alive.
describe(a::AbstractArray{T}) where {T} = describe_as(dtype(T), a, reverse(size(a)))

# The same as bytes, for what only copies: elements of any type without references.
function describe_bits(a::AbstractArray{T}) where {T}
    (T in ELEMENTS || !isbitstype(T)) && return describe(a)
    return describe_as(Low.DDP_U8, a, (length(a) * sizeof(T),))
end

function describe_as(code, a::AbstractArray, shape::NTuple{N,Int}) where {N}
    N <= Low.DDP_MAX_DIMENSIONS || throw(ArgumentError("a tensor has at most $(Low.DDP_MAX_DIMENSIONS) dimensions, this array $N"))
    data = address(a)
    is_dense(a) || throw(ArgumentError("the elements of a $(typeof(a)) of size $(size(a)) do not lie one after another; copy it first"))
    kind, number = device(a)
    tensor = Ref{Low.ddp_tensor}()
    check(Low.ddp_tensor_init(tensor, isempty(a) ? C_NULL : data, code, N, Int64[shape...]))
    t = tensor[]
    return Low.ddp_tensor(t.data, t.dtype, kind, number, t.ndim, t.shape)
end

# What has to be kept so that the memory of an array stays: the array, and a second one of the same memory. While that exists
# push! and resize! are refused, or leave the memory to it.
root(a::Vector) = (a, reshape(a, length(a), 1))
root(a::AbstractArray) = a
lent_array(root::Tuple) = root[1]
lent_array(root::AbstractArray) = root

# ---- Arrays of libddp's memory: plain arrays. ----

# What has to stay so that an array's memory does: views and reshapes of it keep this, too.
holder(a::Array) = VERSION >= v"1.11" ? getfield(getfield(a, :ref), :mem) : a

# The collector does not know how much memory such arrays keep, so it is told when there is twice as much as before.
const shown_bytes = Threads.Atomic{Int}(0)
const collect_at = Threads.Atomic{Int}(1 << 28)

# Memory of libddp as an array. It stays as long as Julia has anything of the array, also after its model and group are closed.
function library_array(::Type{T}, data::Ptr, dims::NTuple{N,Int}) where {T,N}
    bytes = array_bytes(T, dims)
    bytes == 0 && return Array{T,N}(undef, dims)
    if shown_bytes[] > collect_at[]
        GC.gc()
        collect_at[] = max(1 << 28, 2 * shown_bytes[])
    end
    check(Low.ddp_memory_retain(data))
    Threads.atomic_add!(shown_bytes, bytes)
    array = unsafe_wrap(Array, Ptr{T}(data), dims)
    finalizer(holder(array)) do _
        Low.ddp_memory_release(data)
        Threads.atomic_sub!(shown_bytes, bytes)
    end
    return array
end

function library_array(tensor::Low.ddp_tensor)
    tensor.device == Low.DDP_CPU || throw(ArgumentError("the tensor is on a GPU"))
    return library_array(element(tensor.dtype), tensor.data, dimensions(tensor))
end

dimensions(tensor::Low.ddp_tensor) = ntuple(d -> Int(tensor.shape[tensor.ndim + 1 - d]), Int(tensor.ndim))

# The bits of a BF16 tensor are shown as UInt16: nobody need have loaded a type for it.
function element(code::Int32)
    for T in ELEMENTS
        dtype(T) == code && return T
    end
    return UInt16
end

# What an array takes, or an error where that is more than there can be.
function array_bytes(::Type{T}, dims) where {T}
    all(>=(0), dims) || throw(ArgumentError("an array cannot have the size $dims"))
    try
        return foldl(Base.checked_mul, dims; init = sizeof(T))
    catch e
        e isa OverflowError || rethrow()
        throw(ArgumentError("an array of $T of the size $dims is larger than memory can be"))
    end
end
