/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Checkpoints: safetensors files with the caller's own names, saved atomically and durably, loaded at any world size.
 * src/checkpoint/README.md describes the layout.
 */
#ifndef DDP_STATE_H
#define DDP_STATE_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a checkpoint holds. Fill with ddp_state_init(), then set what you have. Since 0.1. */
typedef struct ddp_state {
  int64_t struct_size; /**< set by init */
  ddp_model *model;    /**< parameters and buffers; required */
  ddp_optimizer
      *optimizer;    /**< its moments, rate and step count; of several `optimizers`. Both NULL: not saved, not loaded */
  ddp_ema *ema;      /**< averages; NULL: not saved, not loaded */
  int64_t epoch;     /**< the caller's; saved. A load gives it in ddp_load_report */
  int64_t step;      /**< the caller's; saved. A load gives it in ddp_load_report */
  ddp_outer *outer;  /**< an outer optimizer (ddp/outer.h); NULL: not saved, not loaded */
  const void *own;   /**< for ddp_state_keep (ddp/keep.h), of the first state on rank 0: what the program keeps itself
                        (place in its data, random numbers); NULL: nothing. Not in a file */
  int64_t own_bytes; /**< of these, 0 to 65,536 */
  ddp_optimizer *const *optimizers; /**< in the place of `optimizer`: several of the model, in the order in which the file
                                       has them; a load passes as many, of the same kinds and parameters, in that order.
                                       NULL: `optimizer` alone */
  int64_t optimizer_count;          /**< of `optimizers`; 0 if that is NULL */
} ddp_state;

/** How a checkpoint is loaded. Fill with ddp_load_options_init(), then change what you need. Since 0.1. */
typedef struct ddp_load_options {
  int64_t struct_size; /**< set by init */
  int32_t partial;     /**< 1: what model and checkpoint both have, and what either has alone is only reported; all ranks the
                          same. 0     (default): both must have the same tensors */
  int32_t local;       /**< 1: this rank alone reads, without the others (file or callback of its own); only before
                          ddp_model_commit, which then       gives rank 0's model, optimizer and averages to everybody. 0
                          (default): all       ranks call, rank 0 reads */
} ddp_load_options;

/** What a load found, the same on all ranks. Since 0.1. */
typedef struct ddp_load_report {
  int64_t struct_size; /**< set by the caller */
  int64_t epoch;       /**< as in the ddp_state that was saved */
  int64_t step;        /**< as in the ddp_state that was saved */
  int64_t missing;     /**< with `partial`: tensors that the model, optimizer or averages have and the checkpoint has not;
                          ddp_model_get_missing     names them */
  int64_t unexpected;  /**< with `partial`: tensors that the checkpoint has and the model has not; ddp_model_get_unexpected
                          names them */
  int64_t skipped;     /**< of ddp_state_load_latest: newer files that were not valid; ddp_model_get_skipped returns why */
} ddp_load_report;

/** Takes the next `bytes` of a checkpoint. Returns 0 on success; a C++ exception is a failure too. Called on the
 * calling thread, on the rank that writes. */
typedef int32_t (*ddp_write_fn)(void *user_data, const void *data, int64_t bytes);

/** Gives the next bytes of a checkpoint: at most `capacity`, 0 at the end, negative on failure; a C++ exception is one
    too. Rank 0 only. */
typedef int64_t (*ddp_read_fn)(void *user_data, void *data, int64_t capacity);

/** Write the defaults: all NULL or 0. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_state_init(ddp_state *state, int64_t struct_size);

/** Write the defaults: all 0. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_load_options_init(ddp_load_options *options, int64_t struct_size);

/**
 * Remember a text under a key with the model; it is saved and loaded with it (best accuracy, tokenizer, configuration).
 * @param key 1 to 256 bytes of UTF-8
 * @param value UTF-8 without NUL; copied. NULL removes the key
 * Local; rank 0's values are the ones saved. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_model_set_metadata(ddp_model *model, const char *key, const char *value);

/**
 * Fetch a text.
 * @param out_value owned by the model, valid until the key is set again or the model is destroyed; NULL if the key is
 * missing Local. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_model_get_metadata(const ddp_model *model, const char *key, const char **out_value);

/**
 * Save a checkpoint. Rank 0 writes a temporary file in the folder of `path`, syncs it, renames it and syncs the folder;
 * every rank returns after that, so the file may be read at once and no barrier is needed. On failure the former file is
 * untouched, the temporary one is deleted, and every rank gets the same error. Between a pass that made the step
 * (in_backward) and ddp_optimizer_step, the file holds that step as after it. Collective, blocks; not in an open pass.
 * Errors: IO (disk full, permission, path, named), INVALID_STATE (also after a failed pass or load that changed a part of
 * the parameters), and those of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_state_save_file(const ddp_state *state, const char *path);

/**
 * Load a checkpoint: rank 0 reads, all ranks receive. Names, shapes and dtypes are verified before anything is touched.
 * The model may be committed or not; the world size may differ from the one that saved.
 * @param options NULL: all defaults
 * @param out_report what was found; its struct_size is set by the caller; may be NULL
 * With `partial` a tensor that the checkpoint lacks keeps what it holds (in an optimizer also its step count; an average
 * begins at its parameter), and one that the model lacks is not read; a common name with another shape or dtype is a
 * MISMATCH all the same.
 * A step that a pass made (in_backward) and that ddp_optimizer_step has not ended is over.
 * Master weights whose values are loaded without them begin at the values, and PowerSGD's memory begins anew. Gradients
 * stay as they are.
 * Collective, blocks; with `local` it is local; not in an open pass, nor while ddp_ema_swap has put averages into the
 * parameters (INVALID_STATE). If a load fails after it has begun to write, its error reports it, and the model's calls
 * return INVALID_STATE until a load succeeds. Errors: IO (missing, truncated or not a checkpoint: what and where), MISMATCH
 * (missing, unexpected or different tensors, by name), INVALID_STATE, and those of collectives; the same on every rank.
 * Since 0.1.
 */
DDP_API ddp_status ddp_state_load_file(const ddp_state *state, const char *path, const ddp_load_options *options,
                                       ddp_load_report *out_report);

/**
 * Name of a tensor that the model, optimizer or averages have and the checkpoint of the last load had not.
 * @param index from 0 to below `missing` of the ddp_load_report; in the order of the checkpoint
 * Local. The text is the model's own, valid until the next load or ddp_model_destroy. NULL beyond the last name, and if
 * `model` is not a model. Since 0.1.
 */
DDP_API const char *ddp_model_get_missing(const ddp_model *model, int64_t index);

/** Name of a tensor that the checkpoint of the last load had and the model has not. As ddp_model_get_missing, up to
 * `unexpected`. Local. Since 0.1. */
DDP_API const char *ddp_model_get_unexpected(const ddp_model *model, int64_t index);

/** As ddp_state_save_file, through a callback on rank 0 (object store, archive). The other ranks may pass NULL.
 * Since 0.1. */
DDP_API ddp_status ddp_state_save(const ddp_state *state, ddp_write_fn fn, void *user_data);

/** As ddp_state_load_file, through a callback on rank 0. The other ranks may pass NULL. Since 0.1. */
DDP_API ddp_status ddp_state_load(const ddp_state *state, ddp_read_fn fn, void *user_data, const ddp_load_options *options,
                                  ddp_load_report *out_report);

#ifdef __cplusplus
}
#endif
#endif
