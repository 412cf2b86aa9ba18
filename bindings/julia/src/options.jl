# SPDX-License-Identifier: Apache-2.0
# Options: keyword arguments have the names of the fields in the C header, so every field can be reached, also one that is added later.

# :thread for the field progress is DDP_PROGRESS_THREAD, :bf16 for the field wire is DDP_BF16.
function enumerator(field::Symbol, value::Symbol)
    name = Symbol("DDP_", field === :wire ? "" : uppercase(String(field)) * "_", uppercase(String(value)))
    isdefined(Low, name) || throw(ArgumentError("$field cannot be :$value, there is no $name"))
    return getfield(Low, name)
end

"""The mean over the ranks, as an operation of `allreduce!` and of a model."""
average(values...) = sum(values) / length(values)

reduction(op::Integer) = Int32(op)
function reduction(op)
    op === average && return Low.DDP_AVERAGE
    op === (+) && return Low.DDP_SUM
    op === min && return Low.DDP_MIN
    op === max && return Low.DDP_MAX
    op === (*) && return Low.DDP_PRODUCT
    throw(ArgumentError("ranks can be reduced with +, average, min, max or *, not with $op"))
end

field_value(field::Symbol, value) = value
field_value(field::Symbol, value::Symbol) = enumerator(field, value)
field_value(field::Symbol, value::Function) = reduction(value)

# A struct of the C API with its defaults and these changes.
function options(::Type{T}, init; changes...) where {T}
    defaults = Ref{T}()
    check(init(defaults, sizeof(T)))
    for name in keys(changes)
        (name in fieldnames(T) && name !== :struct_size) ||
            throw(ArgumentError("$name is no option here; there are $(join(filter(!=(:struct_size), collect(fieldnames(T))), ", "))"))
    end
    return T((haskey(changes, name) ? field_value(name, changes[name]) : getfield(defaults[], name) for name in fieldnames(T))...)
end

# A report of the C API as named values.
function report(value::T) where {T}
    names = filter(!=(:struct_size), fieldnames(T))
    return NamedTuple{names}(map(name -> getfield(value, name), names))
end
