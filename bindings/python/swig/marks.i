/* SPDX-License-Identifier: Apache-2.0 */
/* Many marks in one crossing into C: a bucket of PyTorch's may hold thousands of small gradients. */
%inline %{
/** As ddp_model_mark_ready, of each of `count` parameters, whose numbers are at `parameters`. */
ddp_status mark_all_ready(ddp_model *model, const int32_t *parameters, int32_t count, void *stream) {
  ddp_status status = DDP_OK;
  for (int32_t i = 0; status == DDP_OK && i < count; ++i) status = ddp_model_mark_ready(model, parameters[i], stream);
  return status;
}
%}
