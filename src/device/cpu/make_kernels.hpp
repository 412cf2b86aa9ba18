// The table of an instruction set, from its name, the width of its vectors and its conversion of binary16 (the class Isa).
// Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/array_loops.hpp"
#include "device/cpu/fold.hpp"
#include "device/cpu/kernels.hpp"

namespace ddp::cpu {
namespace {

template <class Isa>
constexpr Kernels make_kernels() noexcept {
  Kernels table{};
  table.name = Isa::kName;
  fill_reductions<Isa>(table);
  fill_arrays<Isa>(table);
  return table;
}

}  // namespace
}  // namespace ddp::cpu
