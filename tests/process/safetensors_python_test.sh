# SPDX-License-Identifier: Apache-2.0
# The checkpoints of libddp and the safetensors package of Python: each reads what the other wrote.
set -euo pipefail
python=${DDP_PYTHON:-python3}
"$python" -c 'import safetensors, numpy' 2>/dev/null || { echo "Python's safetensors and numpy are not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/program.c" <<'END'
#include <ddp/ddp.h>
#include <stdio.h>
#include <string.h>

static int check(ddp_status status) {
  if (status != DDP_OK) fprintf(stderr, "%s\n", ddp_last_error());
  return status == DDP_OK;
}

/* save PATH | load PATH: with load, prints the tensors. */
int main(int argc, char **argv) {
  const int64_t two_three[2] = {2, 3}, three = 3;
  float weight[6] = {0.5f, 1, 2, 3, 4, -5};
  double bias[3] = {1e300, -2, 3};
  int64_t seen[1] = {1234567890123};
  unsigned char bytes[3] = {1, 2, 255};
  unsigned short half[3] = {0x3c00, 0xc000, 0x7bff};
  ddp_tensor tensor;
  ddp_group_options options;
  ddp_group *group = NULL;
  ddp_model *model = NULL;
  ddp_optimizer *optimizer = NULL;
  ddp_state state;
  const int saves = argc > 2 && strcmp(argv[1], "save") == 0;
  if (argc != 3) return 2;
  if (!check(ddp_group_options_init(&options, sizeof options))) return 1;
  options.rank = 0;
  options.world_size = 1;
  if (!check(ddp_group_create("local://python", &options, &group)) || !check(ddp_model_create(group, NULL, &model))) return 1;
  check(ddp_tensor_init(&tensor, weight, DDP_F32, 2, two_three));
  if (!check(ddp_model_add_parameter(model, "layer.weight", &tensor, NULL, NULL))) return 1;
  check(ddp_tensor_init(&tensor, bias, DDP_F64, 1, &three));
  if (!check(ddp_model_add_parameter(model, "bias \"\xc3\xa9\"", &tensor, NULL, NULL))) return 1;
  check(ddp_tensor_init(&tensor, half, DDP_F16, 1, &three));
  if (!check(ddp_model_add_parameter(model, "half", &tensor, NULL, NULL))) return 1;
  check(ddp_tensor_init(&tensor, seen, DDP_I64, 0, NULL));
  if (!check(ddp_model_add_buffer(model, "seen", &tensor, NULL))) return 1;
  check(ddp_tensor_init(&tensor, bytes, DDP_U8, 1, &three));
  if (!check(ddp_model_add_buffer(model, "bytes", &tensor, NULL))) return 1;
  if (!check(ddp_optimizer_create_adam(model, NULL, NULL, &optimizer))) return 1;
  if (!check(ddp_state_init(&state, sizeof state))) return 1;
  state.model = model;
  if (saves) {
    state.optimizer = optimizer;
    state.epoch = 3;
    if (!check(ddp_model_set_metadata(model, "note", "from C"))) return 1;
    if (!check(ddp_state_save_file(&state, argv[2]))) return 1;
  } else {
    memset(weight, 0, sizeof weight);
    if (!check(ddp_state_load_file(&state, argv[2], NULL, NULL))) return 1;
    for (int i = 0; i < 6; i++) printf("%g ", weight[i]);
    printf("%g %lld %d\n", bias[0], (long long)seen[0], bytes[2]);
  }
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  return 0;
}
END
"${CC:-cc}" ${DDP_SANITIZE:+-fsanitize=$DDP_SANITIZE} -I"$DDP_SOURCE_DIR/include" "$work/program.c" -o "$work/program" "$DDP_LIBRARY" \
  "-Wl,-rpath,$(dirname "$DDP_LIBRARY")"
"$work/program" save "$work/from_c.safetensors"

"$python" - "$work" <<'END'
import sys
import numpy
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

work = sys.argv[1]
tensors = load_file(work + "/from_c.safetensors")
names = {"layer.weight", 'bias "é"', "half", "seen", "bytes"}
parameters = {"layer.weight", 'bias "é"', "half"}
state = {f"ddp:optimizer/{name}.{field}" for name in parameters for field in ("exp_avg", "exp_avg_sq")}
assert set(tensors) == names | state, sorted(tensors)
assert (tensors["layer.weight"] == numpy.array([[0.5, 1, 2], [3, 4, -5]], numpy.float32)).all()
assert tensors['bias "é"'].tolist() == [1e300, -2, 3] and tensors['bias "é"'].dtype == numpy.float64
assert tensors["half"].tolist() == [1.0, -2.0, 65504.0] and tensors["half"].dtype == numpy.float16
assert tensors["seen"].shape == () and tensors["seen"] == 1234567890123
assert tensors["bytes"].tolist() == [1, 2, 255]
with safe_open(work + "/from_c.safetensors", "numpy") as file:
    texts = file.metadata()
assert texts["ddp.format"] == "2" and texts["ddp.epoch"] == "3" and texts["user.note"] == "from C", texts

mine = {name: tensors[name] for name in names}
mine["layer.weight"] = numpy.arange(6, dtype=numpy.float32).reshape(2, 3) * 2
mine["seen"] = numpy.array(42)
save_file(mine, work + "/from_python.safetensors", {"format": "np"})
save_file(tensors, work + "/kept.safetensors", texts)
END

got=$("$work/program" load "$work/from_python.safetensors")
[ "$got" = "0 2 4 6 8 10 1e+300 42 255" ] || { echo "loaded from Python: $got" >&2; exit 1; }
# The texts of libddp in a file that it did not write: refused, with the reason.
if "$work/program" load "$work/kept.safetensors" 2>"$work/error"; then
  cmp -s "$work/kept.safetensors" "$work/from_c.safetensors" || { echo "a copied checksum was accepted" >&2; exit 1; }
else
  grep -q "kept the ddp" "$work/error" || { cat "$work/error" >&2; exit 1; }
fi
echo "five tensors, their optimizer and the texts in both directions"
