// SPDX-License-Identifier: Apache-2.0
// Two ranks learn one number, and an error has its text: ddprun -n 2 java -Djava.library.path=... Smoke
public class Smoke {
  public static void main(String[] arguments) {
    System.loadLibrary("ddp_java");
    SWIGTYPE_p_ddp_group group = ddp.open_group(null, -1, -1);
    int rank = ddp.ddp_group_get_rank(group);
    SWIGTYPE_p_float value = ddp.new_floats(1);
    ddp.floats_setitem(value, 0, rank);
    SWIGTYPE_p_ddp_model model = ddp.open_model(group);
    ddp.ddp_model_add_parameter(model, "w", ddp.tensor_of(value, 1), null, null);
    ddp.ddp_model_commit(model, null);
    SWIGTYPE_p_ddp_optimizer sgd = ddp.open_sgd(model, 0.5);
    SWIGTYPE_p_float grad = ddp.gradient_of(model, 0);
    for (int step = 0; step < 3; step++) {
      ddp.ddp_model_begin_backward(model, ddp_pass.DDP_PASS_REDUCE);
      ddp.floats_setitem(grad, 0, -2 * rank);
      ddp.ddp_model_mark_ready(model, 0, null);
      ddp.ddp_model_end_backward(model, null);
      ddp.ddp_optimizer_step(sgd, null);
    }
    // The size of a struct is filled in, and numbers have 64 bits.
    ddp_group_options options = new ddp_group_options();
    ddp.ddp_group_options_init(options);
    options.setTimeout_ms(1L << 40);
    ddp_model_stats stats = new ddp_model_stats();
    ddp.ddp_model_get_stats(model, stats);
    if (options.getTimeout_ms() != 1L << 40 || options.getRank() != -1 || stats.getPasses() != 3)
      throw new IllegalStateException("options or stats are wrong");
    String text = "";
    try {
      ddp.ddp_model_commit(model, null);
    } catch (RuntimeException error) {
      text = error.getMessage();
    }
    String verdict = text.contains("the model is already committed") ? "refused" : "not refused: " + text;
    System.out.println("java: " + ddp.floats_getitem(value, 0) + ", " + verdict);
    ddp.ddp_group_barrier(group);
    ddp.ddp_optimizer_destroy(sgd);
    ddp.ddp_model_destroy(model);
    ddp.ddp_group_destroy(group);
  }
}
