/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * A folder of checkpoints: a file for each saved step, of which the newest stay, and the newest valid one is loaded.
 * include/CHECKPOINTS.md, "A folder of checkpoints", shows a program. And a save that one rank makes alone.
 */
#ifndef DDP_LATEST_H
#define DDP_LATEST_H

#include "ddp/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Save a checkpoint into a folder, as the file step-000000001200.safetensors, with the state's `step`. Then remove old ones:
 * of the files with this step or a smaller one the newest `keep` stay. The file of this call always stays, and no other file
 * of the folder is touched but what saves that were killed have left.
 * @param folder is there already; rank 0's counts, the others may pass NULL
 * @param keep 1 or more; 0: remove nothing. Rank 0's counts
 * One job saves to a folder: rank 0 holds a lock on it (the file .ddp-folder.lock) until its model is destroyed or its
 * process ends, and the first save of another job fails with IO and names it. File systems without locks have no such guard.
 * Files of a greater step are left alone, with a warning, because a load of the latest would prefer them.
 * As ddp_state_save_file in all else. Errors: INVALID_ARGUMENT (step or keep below 0), IO, INVALID_STATE, and those of
 * collectives. Since 0.1.
 */
DDP_API ddp_status ddp_state_save_latest(const ddp_state *state, const char *folder, int64_t keep);

/**
 * Load the newest valid checkpoint of a folder that ddp_state_save_latest has filled. Rank 0 looks at the files from the
 * greatest step down, verifies each as a whole, and skips what is damaged or cannot be read, with a warning to the log; all
 * ranks get the same file. `step` of the report is its step, ddp_model_get_loaded_file returns its name. A job may load from
 * a folder while another job saves to it.
 * @param folder rank 0's counts, the others may pass NULL; with `local` this rank's
 * A valid file of another model is not skipped: MISMATCH.
 * As ddp_state_load_file in all else. Errors: NO_CHECKPOINT (the folder has no such file: begin anew), IO (there is no such
 * folder; or it has files and none is valid, the newest is described), MISMATCH, INVALID_STATE, and those of collectives;
 * the same on every rank. Since 0.1.
 */
DDP_API ddp_status ddp_state_load_latest(const ddp_state *state, const char *folder, const ddp_load_options *options,
                                         ddp_load_report *out_report);

/**
 * The file of the last load on rank 0: its path, or "" after a stream. It is the same on all ranks.
 * Local. The text is the model's own, valid until the next load or ddp_model_destroy. NULL before the first load, and if
 * `model` is not a model. Since 0.1.
 */
DDP_API const char *ddp_model_get_loaded_file(const ddp_model *model);

/**
 * A file that the last ddp_state_load_latest skipped, and why, as one sentence.
 * @param index from 0 (the newest) to below `skipped` of the ddp_load_report
 * Local. As ddp_model_get_missing. Since 0.1.
 */
DDP_API const char *ddp_model_get_skipped(const ddp_model *model, int64_t index);

/**
 * Save what this rank has, without the others: the bytes are those of ddp_state_save, and may be loaded like them. For
 * programs in which one rank alone saves; also when the group is broken.
 * @param fn takes the bytes, on the calling thread
 * @param user_data handed to fn
 * Local; not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE (as ddp_state_save_file; and where the optimizer's
 * state is sharded over several ranks: then all save together), CALLBACK (fn did not return 0), OUT_OF_MEMORY. Since 0.1.
 */
DDP_API ddp_status ddp_state_save_local(const ddp_state *state, ddp_write_fn fn, void *user_data);

#ifdef __cplusplus
}
#endif
#endif
