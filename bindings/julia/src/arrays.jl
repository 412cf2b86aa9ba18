# What libddp may use of Julia's arrays, and Julia of libddp's.

const Element = Union{Float32,Float64,Float16,Int32,Int64,UInt8}

dtype(::Type{Float32}) = Low.DDP_F32
dtype(::Type{Float64}) = Low.DDP_F64
dtype(::Type{Float16}) = Low.DDP_F16
dtype(::Type{Int32}) = Low.DDP_I32
dtype(::Type{Int64}) = Low.DDP_I64
dtype(::Type{UInt8}) = Low.DDP_U8
function dtype(::Type{T}) where {T}
    (nameof(T) === :BFloat16 && sizeof(T) == 2) && return Low.DDP_BF16 # of BFloat16s.jl or Core
    throw(ArgumentError("libddp has no tensors of $T: use Float32, Float64, Float16, BFloat16, Int32, Int64 or UInt8"))
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
function describe(a::AbstractArray{T,N}) where {T,N}
    code = dtype(T)
    N <= Low.DDP_MAX_DIMENSIONS || throw(ArgumentError("a tensor has at most $(Low.DDP_MAX_DIMENSIONS) dimensions, this array $N"))
    data = address(a)
    is_dense(a) || throw(ArgumentError("the elements of a $(typeof(a)) of size $(size(a)) do not lie one after another; copy it first"))
    kind, number = device(a)
    tensor = Ref{Low.ddp_tensor}()
    shape = Int64[reverse(size(a))...]
    check(Low.ddp_tensor_init(tensor, isempty(a) ? C_NULL : data, code, N, shape))
    t = tensor[]
    return Low.ddp_tensor(t.data, t.dtype, kind, number, t.ndim, t.shape)
end

# What has to be kept so that the memory of an array stays: the array, and a second one of the same memory. While that exists
# push! and resize! are refused, or leave the memory to it.
root(a::Vector) = (a, reshape(a, length(a), 1))
root(a::AbstractArray) = a

"""
    LentArray{T,N}

Memory that is not Julia's: a gradient or an allocation of libddp, or somebody's tensor inside a callback. A dense array like any other.
It keeps its owner alive; when the owner is closed, or the callback ends, the array becomes empty.
"""
mutable struct LentArray{T,N} <: DenseArray{T,N}
    data::Ptr{T}
    size::NTuple{N,Int}
    owner::Any
end

function LentArray{T}(tensor::Low.ddp_tensor, owner) where {T}
    tensor.dtype == dtype(T) || throw(ArgumentError("the tensor does not hold $T"))
    tensor.device == Low.DDP_CPU || throw(ArgumentError("the tensor is on a GPU"))
    dims = ntuple(d -> Int(tensor.shape[tensor.ndim + 1 - d]), Int(tensor.ndim))
    return LentArray{T,length(dims)}(Ptr{T}(tensor.data), dims, owner)
end

function LentArray(tensor::Low.ddp_tensor, owner)
    for T in (Float32, Float64, Float16, Int32, Int64, UInt8)
        tensor.dtype == dtype(T) && return LentArray{T}(tensor, owner)
    end
    return LentArray{UInt16}(Low.ddp_tensor(tensor.data, Low.DDP_F16, tensor.device, tensor.device_index, tensor.ndim, tensor.shape), owner)
end

# The bits of a BF16 tensor where nobody has loaded a type for it.
function LentArray{UInt16}(tensor::Low.ddp_tensor, owner)
    dims = ntuple(d -> Int(tensor.shape[tensor.ndim + 1 - d]), Int(tensor.ndim))
    return LentArray{UInt16,length(dims)}(Ptr{UInt16}(tensor.data), dims, owner)
end

# The memory is gone: nobody can touch it through this array any more.
function invalidate!(a::LentArray{T,N}) where {T,N}
    a.data, a.size, a.owner = Ptr{T}(C_NULL), ntuple(d -> 0, N), nothing
    return a
end

Base.size(a::LentArray) = a.size
Base.IndexStyle(::Type{<:LentArray}) = IndexLinear()
Base.strides(a::LentArray) = Base.size_to_strides(1, size(a)...)
Base.elsize(::Type{<:LentArray{T}}) where {T} = sizeof(T)
Base.pointer(a::LentArray) = a.data
Base.unsafe_convert(::Type{Ptr{T}}, a::LentArray{T}) where {T} = a.data
Base.@propagate_inbounds function Base.getindex(a::LentArray, i::Int)
    @boundscheck checkbounds(a, i)
    return GC.@preserve a unsafe_load(a.data, i)
end
Base.@propagate_inbounds function Base.setindex!(a::LentArray{T}, value, i::Int) where {T}
    @boundscheck checkbounds(a, i)
    GC.@preserve a unsafe_store!(a.data, convert(T, value), i)
    return a
end
