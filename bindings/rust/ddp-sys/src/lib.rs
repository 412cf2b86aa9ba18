// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers in include/ddp; do not change it by hand.
//! The C functions of libddp as they are. Names, arguments and comments are those of the C header. What a program needs is in the
//! crate `ddp`.
#![no_std]
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

use core::ffi::c_void;
use core::marker::{PhantomData, PhantomPinned};

/// As C sees a byte of a text on this machine.
#[cfg(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64", target_arch = "riscv64", target_arch = "s390x"))]
pub type c_char = u8;
/// As C sees a byte of a text on this machine.
#[cfg(not(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64", target_arch = "riscv64", target_arch = "s390x")))]
pub type c_char = i8;

pub const DDP_VERSION: i32 = 1000;

pub const DDP_VERSION_STRING: &str = "0.1.0";

/// Result of a call. Is the group broken? ddp_group_status answers that after any error: DDP_OK, or the first cause, which
/// later calls on the group repeat until ddp_group_recover. 5, 6, 7 and 16 always break the group; 4 and 11 may. Since 0.1.
pub type ddp_status = i32;
pub const DDP_OK: ddp_status = 0;
pub const DDP_ERROR_INVALID_ARGUMENT: ddp_status = 1;
pub const DDP_ERROR_INVALID_STATE: ddp_status = 2;
pub const DDP_ERROR_NOT_SUPPORTED: ddp_status = 3;
pub const DDP_ERROR_OUT_OF_MEMORY: ddp_status = 4;
pub const DDP_ERROR_TIMED_OUT: ddp_status = 5;
pub const DDP_ERROR_PEER_FAILED: ddp_status = 6;
pub const DDP_ERROR_ABORTED: ddp_status = 7;
pub const DDP_ERROR_MISMATCH: ddp_status = 8;
pub const DDP_ERROR_IO: ddp_status = 9;
pub const DDP_ERROR_CALLBACK: ddp_status = 10;
pub const DDP_ERROR_INTERNAL: ddp_status = 11;
pub const DDP_ERROR_TOO_FEW_RANKS: ddp_status = 12;
pub const DDP_ERROR_FENCED: ddp_status = 13;
pub const DDP_ERROR_NO_CHECKPOINT: ddp_status = 14;
pub const DDP_ERROR_NO_MAJORITY: ddp_status = 15;
pub const DDP_ERROR_DIFFERENT_CALLS: ddp_status = 16;

/// Element type of a tensor. Since 0.1.
pub type ddp_dtype = i32;
pub const DDP_F32: ddp_dtype = 1;
pub const DDP_F64: ddp_dtype = 2;
pub const DDP_F16: ddp_dtype = 3;
pub const DDP_BF16: ddp_dtype = 4;
pub const DDP_I32: ddp_dtype = 5;
pub const DDP_I64: ddp_dtype = 6;
pub const DDP_U8: ddp_dtype = 7;
pub const DDP_C64: ddp_dtype = 8;
pub const DDP_C128: ddp_dtype = 9;

/// Where a tensor's memory is. The numbers are DLPack's. Since 0.1.
pub type ddp_device_kind = i32;
pub const DDP_CPU: ddp_device_kind = 1;
pub const DDP_CUDA: ddp_device_kind = 2;

/// How values of all ranks become one. AVERAGE is the sum divided by the world size. PRODUCT is for the collectives of
/// groups, not for gradients. Since 0.1.
pub type ddp_reduce = i32;
pub const DDP_AVERAGE: ddp_reduce = 0;
pub const DDP_SUM: ddp_reduce = 1;
pub const DDP_MIN: ddp_reduce = 2;
pub const DDP_MAX: ddp_reduce = 3;
pub const DDP_PRODUCT: ddp_reduce = 4;

/// How the bytes of a group are sent. AUTO chooses: shared memory between ranks of one host, Gloo between hosts; and NCCL for
/// tensors on a GPU, from the first model or collective with one. Since 0.1.
pub type ddp_backend = i32;
pub const DDP_BACKEND_AUTO: ddp_backend = 0;
pub const DDP_BACKEND_GLOO: ddp_backend = 1;
pub const DDP_BACKEND_NCCL: ddp_backend = 2;
pub const DDP_BACKEND_SHM: ddp_backend = 3;
pub const DDP_BACKEND_LOCAL: ddp_backend = 4;

/// In which order the ranks' contributions are added. The sum is a balanced tree; this option chooses the leaf of each rank.
/// BY_RANK: the bits do not depend on which ranks share a host. BY_HOST: the ranks of a host are added first, so each host
/// sends one partial sum, whatever its number of ranks; the bits depend on which ranks share a host. Since 0.1.
pub type ddp_sum_order = i32;
pub const DDP_SUM_ORDER_BY_RANK: ddp_sum_order = 0;
pub const DDP_SUM_ORDER_BY_HOST: ddp_sum_order = 1;

/// How data is sent between processes that share no memory. ENCRYPTED: TLS 1.3 with a key made of the group's token: an
/// attacker on the way cannot read it, and bytes that are changed, repeated, dropped or reordered are an error. PLAIN: only
/// TCP's checksum protects it. AUTO: encrypted if the group has a token, except for connections to a loopback address. NCCL's
/// connections between GPUs are always plain. Since 0.1.
pub type ddp_links = i32;
pub const DDP_LINKS_AUTO: ddp_links = 0;
pub const DDP_LINKS_ENCRYPTED: ddp_links = 1;
pub const DDP_LINKS_PLAIN: ddp_links = 2;

pub const DDP_MAX_DIMENSIONS: i32 = 8;

/// A dense, row-major tensor that the caller owns. A plain value, frozen: it never changes its layout.
/// Fill it by hand or with ddp_tensor_init(). Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_tensor {
    /// first element; NULL only when the tensor has no element
    pub data: *mut c_void,
    /// element type
    pub dtype: ddp_dtype,
    /// DDP_CPU or DDP_CUDA
    pub device: ddp_device_kind,
    /// which GPU; 0 on CPU
    pub device_index: i32,
    /// 0 (a scalar) to DDP_MAX_DIMENSIONS
    pub ndim: i32,
    /// elements per dimension; entries from ndim on are ignored
    pub shape: [i64; 8],
}

/// ranks that act together
#[repr(C)]
pub struct ddp_group {
    _private: [u8; 0],
    _pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

/// parameters and buffers lent to libddp, and their gradients
#[repr(C)]
pub struct ddp_model {
    _private: [u8; 0],
    _pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

/// updates the parameters of a model
#[repr(C)]
pub struct ddp_optimizer {
    _private: [u8; 0],
    _pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

/// running averages of a model's parameters
#[repr(C)]
pub struct ddp_ema {
    _private: [u8; 0],
    _pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

/// exchanges movements of ranks that make steps on their own
#[repr(C)]
pub struct ddp_outer {
    _private: [u8; 0],
    _pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Severity of a log message. Since 0.1.
pub type ddp_log_level = i32;
pub const DDP_LOG_DEBUG: ddp_log_level = 0;
pub const DDP_LOG_INFO: ddp_log_level = 1;
pub const DDP_LOG_WARNING: ddp_log_level = 2;
pub const DDP_LOG_ERROR: ddp_log_level = 3;
pub const DDP_LOG_OFF: ddp_log_level = 4;

/// Receives log messages. Called from any thread, one message at a time; must not call libddp.
/// `text` is one line without a newline, valid during the call. If a C++ exception leaves it, the line goes to stderr
/// instead. A forked child logs to the same function.
pub type ddp_log_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, level: ddp_log_level, text: *const c_char)>;

/// A message of the log. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_log_message {
    /// set by the library: sizeof(ddp_log_message) as it knows it
    pub struct_size: i64,
    /// never DDP_LOG_OFF
    pub level: ddp_log_level,
    /// of the error that the message reports; DDP_OK: it reports none
    pub code: ddp_status,
    /// ddp_group_get_number of the group that the message is about; 0: of none, or not known
    pub group: i64,
    /// of this process in that group; -1: not known yet, or no group
    pub rank: i32,
    /// 0
    pub reserved: i32,
}

/// Receives log messages (ddp_add_log_listener). Called from any thread, one message at a time in the whole process. It may
/// call ddp_add_log_listener, ddp_remove_log_listener (also for itself) and ddp_set_log; it must not make other calls of
/// libddp, nor wait for a thread that does. A message that libddp logs on the same thread meanwhile goes to stderr alone. If
/// a C++ exception leaves it, the line goes to stderr. A forked child logs to the same functions. `message` and `text`, which
/// is one line without a newline, are valid during the call.
pub type ddp_log_listener_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, message: *const ddp_log_message, text: *const c_char)>;

/// What an error is about, as numbers: ddp_get_error_details. A program reads them in the place of the text, which may
/// change. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_error_details {
    /// set by the caller
    pub struct_size: i64,
    /// that the failed call has returned; DDP_OK: no call has failed on this thread
    pub status: ddp_status,
    /// ranks that the error is about, see ddp_get_error_ranks
    pub rank_count: i32,
    /// parameters that it is about, see ddp_get_error_parameters
    pub parameter_count: i32,
    /// the collective call that failed, for ddp_call_name(); of DIFFERENT_CALLS, that of the first
    ///                               of the two ranks. 0: the call was not collective
    pub call: i32,
    /// of DIFFERENT_CALLS, that of the second of the two ranks; else 0
    pub other_call: i32,
    /// 0
    pub reserved: i32,
    /// where sizes differ, of the receiver or the lower rank; -1: it is not about sizes
    pub bytes_expected: i64,
    /// where sizes differ, of the sender or the other rank; -1
    pub bytes_got: i64,
}

pub const DDP_MAX_ERROR_LIST: i32 = 128;

/// Store a value under a key, for other ranks. Returns 0 on success. `key` is text, `value` any bytes.
pub type ddp_store_set_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, key: *const c_char, value: *const c_void, bytes: i64) -> i32>;

/// Fetch a value, waiting for it up to `timeout_ms`. Writes at most `capacity` bytes and the value's length to
/// `out_bytes`. Returns 0 on success, 1 when the time is over, anything else on failure.
pub type ddp_store_get_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, key: *const c_char, value: *mut c_void, capacity: i64, timeout_ms: i64, out_bytes: *mut i64) -> i32>;

/// Bring your own rendezvous (MPI, Redis, Kubernetes, a test): two callbacks with which ranks find rank 0.
/// Called only inside ddp_group_create, on the calling thread. A C++ exception that leaves one is a failure with its text.
/// Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_store {
    /// set by the caller
    pub struct_size: i64,
    /// not NULL
    pub set: ddp_store_set_fn,
    /// not NULL
    pub get: ddp_store_get_fn,
    /// handed to both
    pub user_data: *mut c_void,
}

/// Options of a group. Fill with ddp_group_options_init(), then change what you need. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_group_options {
    /// set by init
    pub struct_size: i64,
    /// 0 to world_size - 1; -1: from the rendezvous (default)
    pub rank: i32,
    /// number of ranks; -1: from the rendezvous (default)
    pub world_size: i32,
    /// DDP_BACKEND_AUTO (default)
    pub backend: ddp_backend,
    /// GPU of this rank; -1: LOCAL_RANK (default); ignored on CPU
    pub device_index: i32,
    /// a collective in which a living rank makes no progress for this long fails with
    ///                                       TIMED_OUT; 0: never (default 1,800,000)
    pub timeout_ms: i64,
    /// how often each rank shows that it lives (default 1,000)
    pub heartbeat_ms: i64,
    /// silence after which a rank counts as dead (default 10,000)
    pub dead_after_ms: i64,
    /// how long ddp_group_create waits for all ranks (default 120,000)
    pub rendezvous_timeout_ms: i64,
    /// own rendezvous, or NULL (default); copied by ddp_group_create
    pub store: *const ddp_store,
    /// DDP_SUM_ORDER_BY_RANK (default), or DDP_SUM_ORDER_BY_HOST: less traffic between hosts whose
    ///                               ranks are not aligned blocks of a power of two; equal on all ranks
    pub sum_order: ddp_sum_order,
    /// 1: sums of tensors on GPUs have the bits of sums in host memory; for ranks of one host, else
    ///                               NOT_SUPPORTED where a GPU is first used. 0 (default): NCCL adds, in an order of its own, which is
    ///                               faster. Equal on all ranks
    pub reproducible: i32,
    /// most blocks (CTAs) that a collective of NCCL runs on the GPU, 1 to 64. Fewer leave more of the
    ///                             GPU to the program and communicate more slowly. 0 (default): NCCL chooses. Equal on all ranks.
    ///                             NCCL_MAX_CTAS in the environment comes before it
    pub nccl_max_ctas: i32,
    /// 1: when a rank dies, the other ranks may continue in their processes, see ddp/recover.h. Every
    ///                             rank then listens at one more address, and calls about models on GPUs wait for what the ranks
    ///                             exchange. 0 (default). Equal on all ranks; not for local://, nor with nccl_comm
    pub recoverable: i32,
    /// an ncclComm_t of the same ranks that the program lends (include/GPU.md, "A communicator of
    ///                             your own"): libddp makes none, and never finalises, destroys or aborts it. All ranks lend one,
    ///                             or none (MISMATCH). NULL (default): libddp makes its own
    pub nccl_comm: *mut c_void,
    /// connections between processes are listened for on ports from this one on, for a firewall
    ///                             between hosts: one port a rank of a host while connections are made, and rank 0's where the
    ///                             rendezvous names none. 0 (default): DDP_PORT_RANGE in the environment ("50000-50100"), or any
    pub first_port: i32,
    /// to this one, included; 0 with first_port 0 (default)
    pub last_port: i32,
    /// 1: this process is no rank yet, and joins an existing group that was made with recoverable = 1,
    ///                             in the place of a rank that died or as one more. rank and world_size are what the group makes
    ///                             them (see ddp/recover.h). 0 (default), or 1 if DDP_JOIN=1 is in the environment
    pub join: i32,
    /// parts of the global batch, of which each rank has some: training gives the same bits at any
    ///                             number of ranks up to this one (see ddp/virtual_ranks.h). 0 (default): none. Equal on all
    ///                             ranks
    pub virtual_ranks: i32,
    /// 1: all connections for messages (see ddp/messages.h) are made with the group, so that no rank
    ///                             listens for them later. 0 (default): each when two ranks have their first message. Equal on all
    ///                             ranks
    pub connect_all: i32,
    /// DDP_LINKS_AUTO (default): encrypted between hosts, or DDP_LINKS in the environment (auto,
    ///                             encrypted, plain). DDP_LINKS_ENCRYPTED is NOT_SUPPORTED without a token, and with GPUs on several
    ///                             hosts, whose connections are NCCL's. Equal on all ranks
    pub links: ddp_links,
    /// 1: the channel for collectives that are posted (see ddp/request.h) is opened with the group, so
    ///                             that the first one may be posted while a pass is open. 0 (default): with the first one. Equal on
    ///                             all ranks
    pub requests: i32,
    /// 1: no thread of this rank makes a call on the group while another one is in one, except for
    ///                             ddp_group_abort. Ranks that wait for each other in messages then get DIFFERENT_CALLS (see
    ///                             include/MESSAGES.md). 0 (default): another thread may send later what they wait for, so they wait
    ///                             until TIMED_OUT. Each rank for itself
    pub one_thread: i32,
}

pub const DDP_NO_COLOR: i32 = -1;

pub const DDP_ANY_SOURCE: i32 = -1;

/// What a pass does with parameters that were not marked. Since 0.1.
pub type ddp_unused = i32;
pub const DDP_UNUSED_ERROR: ddp_unused = 0;
pub const DDP_UNUSED_ALLOW: ddp_unused = 1;

/// Which thread does the work of reducing. The bits are the same. Since 0.1.
pub type ddp_progress = i32;
pub const DDP_PROGRESS_AUTO: ddp_progress = 0;
pub const DDP_PROGRESS_CALLER: ddp_progress = 1;
pub const DDP_PROGRESS_THREAD: ddp_progress = 2;

/// What the periodic check (`check_every`) does when replicas differ. Since 0.1.
pub type ddp_drift = i32;
pub const DDP_DRIFT_REPORT: ddp_drift = 0;
pub const DDP_DRIFT_RESEND: ddp_drift = 1;

/// What DDP_AVERAGE divides the sum over the ranks by. Since 0.1.
pub type ddp_divisor = i32;
pub const DDP_DIVISOR_WORLD: ddp_divisor = 0;
pub const DDP_DIVISOR_WEIGHTS: ddp_divisor = 1;

/// Options of a model. Fill with ddp_model_options_init(), then change what you need. All ranks must agree. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_model_options {
    /// set by init
    pub struct_size: i64,
    /// size at which the first bucket of a pass closes (default 1 MiB)
    pub first_bucket_bytes: i64,
    /// size at which every other bucket closes; 0 (default): in host memory a 16th of all
    ///                                  gradients, 4 to 25 MiB, on a GPU 64 MiB. A larger gradient (by default than 25, 64 MiB) is
    ///                                  split into even pieces of at least 64 KiB, buckets of their own, the last elements first; not
    ///                                  behind a hook (25 MiB), which gets whole gradients. Bits do not depend on it
    pub bucket_bytes: i64,
    /// DDP_AVERAGE (default) or DDP_SUM over the ranks
    pub reduce: ddp_reduce,
    /// DDP_UNUSED_ERROR (default) or DDP_UNUSED_ALLOW
    pub unused: ddp_unused,
    /// DDP_PROGRESS_AUTO (default); ranks may differ
    pub progress: ddp_progress,
    /// DDP_DRIFT_REPORT (default) or DDP_DRIFT_RESEND
    pub drift: ddp_drift,
    /// k: every k-th REDUCE pass ends with a comparison of the parameters of all ranks (one pass over
    ///                             memory and one small message); 0 (default): only ddp_model_check_replicas compares. With an
    ///                             optimizer that   has shard and in_backward it finds no drift: such a pass gives each owner's values
    ///                             to all ranks   before the comparison, also values that have drifted on the owner. With shard alone
    ///                             it   finds what   has drifted since the last ddp_optimizer_step
    pub check_every: i64,
    /// DDP_DIVISOR_WORLD (default) or DDP_DIVISOR_WEIGHTS
    pub divisor: ddp_divisor,
    /// 1: ranks may run out of data and call ddp_model_join; costs one small message a pass, which
    ///                               nobody waits for, and excludes optimizers with shard; 0 (default)
    pub uneven_inputs: i32,
    /// DDP_F16 or DDP_BF16: F32 and F64 gradients are sent with 16 bits. Each rank's gradient is divided by
    ///                      the number of ranks (DDP_AVERAGE) in its own type and rounded once; terms are added in the tree over the
    ///                      ranks, each sum rounded to 16 bits. The same bits on every rank, transport and bucket size, also where
    ///                      nothing travels because ranks reduce in place. What does not fit into F16 becomes infinite on all ranks,
    ///                      NaN stays NaN; BF16 has the range of F32 and 8 bits of precision. Gradients of 16 bits, and groups of
    ///                      one rank, are as they are. DDP_F32: gradients of 16 bits are added between GPUs as F32 and rounded once,
    ///                      as they always are in host memory; twice the bytes. 0 (default): no other type
    pub wire: ddp_dtype,
    /// 1: libddp keeps the values of parameters. ddp_model_commit copies them into memory of its own and
    ///                          uses the lent memory no more, so that it can be freed; ddp_model_get_value tells the new addresses.
    ///                          An optimizer with shard then gives values in place: on a GPU without a copy of them, on one host
    ///                          through shared memory. 0 (default): values stay where they are
    pub own_values: i32,
}

/// Numbers of a model's passes. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_model_stats {
    /// set by the caller
    pub struct_size: i64,
    /// registered parameters
    pub parameters: i64,
    /// elements in all parameters
    pub elements: i64,
    /// buckets of the plan
    pub buckets: i64,
    /// finished passes that reduced
    pub passes: i64,
    /// bytes of gradient reduced in one pass
    pub gradient_bytes: i64,
    /// last pass: from begin_backward to the return of end_backward
    pub backward_ns: i64,
    /// last pass: from the start of the first bucket to the end of the last
    pub comm_ns: i64,
    /// last pass: part of it that the caller spent inside libddp (not hidden behind computation)
    pub exposed_ns: i64,
    /// sums over all passes
    pub total_backward_ns: i64,
    pub total_comm_ns: i64,
    pub total_exposed_ns: i64,
    /// comparisons of the replicas by check_every
    pub checks: i64,
    /// of them, those after which the majority's state was sent again
    pub repairs: i64,
    /// last pass, and the step after it that gives values to the other ranks (shard): all bytes that this
    ///                          rank sent to other hosts, with headers and Gloo's frames but without TCP's and heartbeats, or copied
    ///                          to where the other ranks of its host read them; what they read where it lies is not counted
    pub sent_bytes: i64,
    /// sum over all passes and steps
    pub total_sent_bytes: i64,
}

/// What a pass does. Since 0.1.
pub type ddp_pass = i32;
pub const DDP_PASS_REDUCE: ddp_pass = 0;
pub const DDP_PASS_ACCUMULATE: ddp_pass = 1;
pub const DDP_PASS_LOCAL: ddp_pass = 2;
pub const DDP_PASS_PART: ddp_pass = 3;

/// Who took part in a pass, the same on all ranks. With virtual ranks (ddp/virtual_ranks.h) they are counted and named in
///    the place of ranks. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_pass_report {
    /// set by the caller
    pub struct_size: i64,
    /// ranks whose gradients counted: they neither skipped nor joined, and their weight was above 0
    pub contributors: i32,
    /// 1: some rank has no batch for the next pass (ddp_model_set_last_pass, ddp_model_join)
    pub last: i32,
    /// sum of their weights, formed in the tree over the ranks
    pub weight: f64,
    /// ranks that are not among the contributors: ddp_model_get_absent lists them
    pub absent_count: i32,
    /// 0
    pub reserved: i32,
}

/// What a step does about gradients with infinite or NaN elements; every rank does the same. Since 0.1.
pub type ddp_nonfinite = i32;
pub const DDP_NONFINITE_KEEP: ddp_nonfinite = 0;
pub const DDP_NONFINITE_SKIP: ddp_nonfinite = 1;
pub const DDP_NONFINITE_FAIL: ddp_nonfinite = 2;

/// Common options of all rules: where a rule runs, how it takes gradients, and its state. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_optimizer_options {
    /// set by init
    pub struct_size: i64,
    /// 1: each rank keeps the state of its slice of the parameters alone, updates that slice and gives the
    ///                     values to the others; memory of the state divided by the ranks. After a REDUCE pass a rank's gradients
    ///                     hold the mean in its own slice only, and ddp_optimizer_step, ddp_model_get_grad_norm and saving are
    ///                     collective. All ranks the same. Default 0
    pub shard: i32,
    /// 1: the update of a bucket follows its reduction at once, within the pass; ddp_optimizer_step then
    ///                           ends the step and is called after every REDUCE pass. Mark a parameter only when its value is no
    ///                           longer read in this pass. With max_norm, nonfinite or a dynamic loss scale the update waits for
    ///                           ddp_optimizer_step after all. Default 0
    pub in_backward: i32,
    /// with in_backward, and with a rule of the program: 1 (default) keeps what a pass or step changes (values
    ///                    and state once more), and takes it back when the pass or the rule fails; 0 saves that memory, and
    ///                    after such a failure nothing goes on (INVALID_STATE) until parameters and optimizer are loaded again.
    ///                    On GPUs, with in_backward, each rank keeps its slice alone, and the ranks take a void pass back together;
    ///                    when the group breaks in a pass that had begun to update, it is as with 0. Ranks keep all that they change
    ///                    with a rule of the program, with uneven_inputs, and from a LOCAL pass on
    pub undo: i32,
    /// 1: F16 and BF16 parameters are rounded copies of F32 master weights, which belong to the
    ///                               state. Default 0
    pub master_weights: i32,
    /// gradients of the optimizer's parameters with infinite or NaN elements: DDP_NONFINITE_KEEP
    ///                               (default), SKIP or FAIL
    pub nonfinite: ddp_nonfinite,
    /// 1: a pass may leave sums over the ranks in gradients on a GPU, and ddp_optimizer_step divides
    ///                               what it reads and writes the mean back: the same bits, and one pass over gradient memory less.
    ///                               From the pass to the step the program neither uses nor changes gradients; libddp's functions
    ///                               that would (norm, scale, clip) return INVALID_STATE. Without effect where sums cost nothing: in
    ///                               host memory, with in_backward, max_norm, nonfinite, a dynamic loss scale, or a frozen parameter.
    ///                               All ranks the same. Default 0
    pub divide_in_step: i32,
    /// above 0: scale the gradients down so that their 2-norm over the optimizer's parameters is at most
    ///                         this, as torch.nn.utils.clip_grad_norm_. The gradients in memory stay as they are. With shard, change
    ///                         them after the pass only with ddp_model_scale_grad. Default 0: no clipping
    pub max_norm: f64,
    /// above 0: limit every element to this magnitude, after max_norm. Default 0: no clipping
    pub clip_value: f64,
    /// `parameter_count` different indices: the parameters that the optimizer changes; copied.
    ///                                 NULL (default): all that have no optimizer, also those that are registered later. All ranks
    ///                                 the same
    pub parameters: *const i32,
    /// of `parameters`, 1 or more; 0 (default): NULL
    pub parameter_count: i64,
    /// with shard, not with in_backward. 1: ddp_optimizer_step returns when the own slice is updated,
    ///                           and the values of the other ranks come while the next forward computes. Wait for a parameter before
    ///                           it is used (ddp_model_wait_value). All ranks the same. Default 0
    pub late_values: i32,
    /// 0
    pub reserved: i32,
}

/// The rule of stochastic gradient descent. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_sgd_options {
    /// set by init
    pub struct_size: i64,
    /// learning rate (default 0.01)
    pub rate: f64,
    /// default 0: no momentum buffer is kept
    pub momentum: f64,
    /// default 0
    pub dampening: f64,
    /// default 0; added to the gradient
    pub weight_decay: f64,
    /// 0 (default) or 1; needs momentum above 0 and dampening 0
    pub nesterov: i32,
    /// 0
    pub reserved: i32,
}

/// The rule of Adam and AdamW. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_adam_options {
    /// set by init
    pub struct_size: i64,
    /// learning rate (default 0.001)
    pub rate: f64,
    /// default 0.9
    pub beta1: f64,
    /// default 0.999
    pub beta2: f64,
    /// default 1e-8. Not 0, nor below what F32 can hold: an element whose gradients were all 0 would become 0
    ///                      / 0
    pub epsilon: f64,
    /// default 0.01
    pub weight_decay: f64,
    /// 1 (default): AdamW; 0: Adam, the decay is added to the gradient
    pub decoupled: i32,
    /// 0
    pub reserved: i32,
}

/// Options of the loss scale, a factor on the loss that keeps small F16 gradients from vanishing. The
/// optimizer divides the gradients by it. Dynamic (interval above 0): a step whose gradients are not finite is left out and
/// the scale multiplied by `backoff`; after `interval` good steps in a row it is multiplied by `growth`. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_loss_scale_options {
    /// set by init
    pub struct_size: i64,
    /// default 65536
    pub initial: f64,
    /// default 2
    pub growth: f64,
    /// default 0.5
    pub backoff: f64,
    /// default 1
    pub minimum: f64,
    /// default 16777216
    pub maximum: f64,
    /// default 2000; 0: the scale stays at `initial`
    pub interval: i64,
}

/// Called exactly once, when libddp needs a callback's user data no more; may be NULL. A C++ exception that leaves it is
/// logged.
pub type ddp_release_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// What a checkpoint holds. Fill with ddp_state_init(), then set what you have. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_state {
    /// set by init
    pub struct_size: i64,
    /// parameters and buffers; required
    pub model: *mut ddp_model,
    /// its moments, rate and step count; of several `optimizers`. Both NULL: not saved, not loaded
    pub optimizer: *mut ddp_optimizer,
    /// averages; NULL: not saved, not loaded
    pub ema: *mut ddp_ema,
    /// the caller's; saved. A load gives it in ddp_load_report
    pub epoch: i64,
    /// the caller's; saved. A load gives it in ddp_load_report
    pub step: i64,
    /// an outer optimizer (ddp/outer.h); NULL: not saved, not loaded
    pub outer: *mut ddp_outer,
    /// for ddp_state_keep (ddp/keep.h), of the first state on rank 0: what the program keeps itself
    ///                         (place in its data, random numbers); NULL: nothing. Not in a file
    pub own: *const c_void,
    /// of these, 0 to 65,536
    pub own_bytes: i64,
    /// in the place of `optimizer`: several of the model, in the order in which the file
    ///                                        has them; a load passes as many, of the same kinds and parameters, in that order.
    ///                                        NULL: `optimizer` alone
    pub optimizers: *mut *mut ddp_optimizer,
    /// of `optimizers`; 0 if that is NULL
    pub optimizer_count: i64,
}

/// How a checkpoint is loaded. Fill with ddp_load_options_init(), then change what you need. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_load_options {
    /// set by init
    pub struct_size: i64,
    /// 1: what model and checkpoint both have, and what either has alone is only reported; all ranks the
    ///                           same. 0     (default): both must have the same tensors
    pub partial: i32,
    /// 1: this rank alone reads, without the others (file or callback of its own); only before
    ///                           ddp_model_commit, which then       gives rank 0's model, optimizer and averages to everybody. 0
    ///                           (default): all       ranks call, rank 0 reads
    pub local: i32,
}

/// What a load found, the same on all ranks. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_load_report {
    /// set by the caller
    pub struct_size: i64,
    /// as in the ddp_state that was saved
    pub epoch: i64,
    /// as in the ddp_state that was saved
    pub step: i64,
    /// with `partial`: tensors that the model, optimizer or averages have and the checkpoint has not;
    ///                           ddp_model_get_missing     names them
    pub missing: i64,
    /// with `partial`: tensors that the checkpoint has and the model has not; ddp_model_get_unexpected
    ///                           names them
    pub unexpected: i64,
    /// of ddp_state_load_latest: newer files that were not valid; ddp_model_get_skipped returns why
    pub skipped: i64,
}

/// Takes the next `bytes` of a checkpoint. Returns 0 on success; a C++ exception is a failure too. Called on the
/// calling thread, on the rank that writes.
pub type ddp_write_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, data: *const c_void, bytes: i64) -> i32>;

/// Gives the next bytes of a checkpoint: at most `capacity`, 0 at the end, negative on failure; a C++ exception is one
///     too. Rank 0 only.
pub type ddp_read_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, data: *mut c_void, capacity: i64) -> i64>;

/// A data set's partition. The order of an epoch is a permutation made from seed and epoch (or the identity); rank r takes
/// every `size`-th index of it, from position r. All ranks get the same number of indices: the order is padded by starting
/// over, or its tail is dropped. Padding gives some samples twice, so sums over an epoch (ddp_group_reduce_metrics) count
/// them twice: an exact evaluation leaves out the positions seen + first * size + rank that are dataset_size or more.
///
/// When the number of ranks changes in the middle of an epoch, `seen` carries over what is done: after all ranks have used
/// the positions below `first` of their shares, add first * size to `seen`, set the new rank and size, and begin again at
/// position 0. Rank r then takes the positions seen + r, seen + r + size, ... of the same order, so no sample of the epoch is
/// repeated or left out; only the end of the epoch is padded (from the start of the order) or dropped, by less than one
/// sample a rank. Parts of a virtual rank need none of it: their `size` never changes. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_sampler {
    /// set by init
    pub struct_size: i64,
    /// samples in all, 0 or more
    pub dataset_size: i64,
    /// default 0
    pub seed: i64,
    /// default 0
    pub rank: i32,
    /// number of ranks (default 1)
    pub size: i32,
    /// 1 (default) or 0
    pub shuffle: i32,
    /// 0 (default): pad by starting over; 1: drop the tail
    pub drop_last: i32,
    /// default 0. Samples of the epoch that all ranks together have seen before the number of ranks
    ///                            changed: what is left is dealt out over `size` ranks. 0 to dataset_size
    pub seen: i64,
}

/// A rule of the program. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_custom_options {
    /// set by init
    pub struct_size: i64,
    /// learning rate (default 0)
    pub rate: f64,
    /// handed to the rule, which applies it (default 0)
    pub weight_decay: f64,
    /// 1: the rule gets each parameter as a whole, in one slice. With `shard` each parameter has one
    ///                             rank that updates it, and on a GPU that is NOT_SUPPORTED. With `in_backward` a parameter is
    ///                             updated when the last bucket with a piece of it is reduced; with `shard` too, its values reach
    ///                             the other ranks at the end of the pass. Default 0: an element depends on nothing but its own
    ///                             gradient and state, so slices may begin and end anywhere
    pub whole_tensors: i32,
    /// 0
    pub reserved: i32,
}

pub const DDP_MAX_STATES: i32 = 16;

/// A stretch of a parameter that a rule is to change. On the CPU `value` and `grad` are F32, for an F64 parameter F64: F16
/// and BF16 are widened before and rounded after, or `value` is the master copy. `grad` is divided by the loss scale and
/// clipped. On a GPU (`device` DDP_CUDA) they are the parameter's own memory, of its dtype, and the rule enqueues its work on
/// `stream`. Complex numbers come as their parts, each an element. Valid during the call. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_update_slice {
    pub struct_size: i64,
    /// of the parameter
    pub index: i32,
    /// of value and grad
    pub dtype: ddp_dtype,
    /// count elements, to be changed
    pub value: *mut c_void,
    /// count elements
    pub grad: *const c_void,
    /// state_count arrays of count elements, to be changed: F64 for an F64 parameter, else F32
    pub state: [*mut c_void; 16],
    /// as many as state_names has
    pub state_count: i32,
    /// of value, grad and state
    pub device: ddp_device_kind,
    /// which GPU; 0 on the CPU
    pub device_index: i32,
    pub reserved: i32,
    /// the first element's place in the flattened parameter
    pub first: i64,
    /// elements, 1 or more
    pub count: i64,
    /// which step of this parameter this is, from 1
    pub step: i64,
    /// of this parameter: its rate_scale is in it
    pub rate: f64,
    /// of this parameter
    pub weight_decay: f64,
    /// a cudaStream_t; NULL on the CPU
    pub stream: *mut c_void,
}

/// Changes one slice in place, the same on every rank. Each element of each used parameter comes in one slice of a step.
/// Called on the thread of ddp_optimizer_step. With `shard` or `in_backward` it is called on any thread that works on the
/// pass, one of the library's too; if the model has DDP_PROGRESS_CALLER, on threads of the program alone, inside a call of
/// theirs on the model's group (mark_ready, end_backward, step, another one that waits). Calls for different slices may come
/// at the same time and in any order. It calls no function of libddp on this model, and returns: no longjmp, and no end of a
/// thread that it did not make.
/// A value other than 0, or a C++ exception, fails the step with CALLBACK; the rule is not called again in that step. With
/// `undo` (default) parameters and state are then as they were before the step, on all ranks if the call was collective.
pub type ddp_update_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, slice: *const ddp_update_slice) -> i32>;

/// a bucket inside a hook
#[repr(C)]
pub struct ddp_bucket {
    _private: [u8; 0],
    _pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Reduces one bucket. It runs on a library thread (the lane), or with DDP_PROGRESS_CALLER inside ddp_model_end_backward on
/// the thread of that call, whatever the transport. Of the model and its own group it may call the getters alone;
/// ddp_bucket_get_group gives what collectives take there.
/// It returns: no longjmp, and no end of its thread.
/// @param bucket usable until the hook returns
/// Returns 0, or any other number if it failed (set the text with ddp_bucket_set_error). A C++ exception that leaves it is a
/// failure with its text. Since 0.1.
pub type ddp_hook_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, bucket: *mut ddp_bucket) -> i32>;

/// Options of PowerSGD. Fill with ddp_powersgd_options_init(), then change what you need. All ranks must agree.
/// Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_powersgd_options {
    /// set by init
    pub struct_size: i64,
    /// of the first vectors (default 0)
    pub seed: i64,
    /// REDUCE passes that are reduced plainly first (default 1,000)
    pub start_pass: i64,
    /// compress an n x m gradient if (n + m) rank rate < n m (default 2; 1 or more)
    pub min_compression_rate: f64,
    /// vectors that stand for a matrix (default 1; 1 to 1,024)
    pub rank: i32,
    /// 1 (default): begin a pass with the vectors of the one before
    pub warm_start: i32,
    /// 1 (default): what was lost is added to the next pass's gradient
    pub error_feedback: i32,
}

/// Options of a recovery. Fill with ddp_recover_options_init(). Equal on all ranks. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_recover_options {
    /// set by init
    pub struct_size: i64,
    /// how long to wait for a rank that is alive but does not call ddp_group_recover, because it computes,
    ///                           and for a new rank that does not commit its models; 0: as long as it takes, for a new rank
    ///                           timeout_ms (default 60,000). Ranks that were silent, or are out of reach, are not waited for:
    ///                           about a second
    pub wait_ms: i64,
    /// with fewer the call fails with TOO_FEW_RANKS; 1 or more (default 1)
    pub min_ranks: i32,
    /// ranks that are silent may live on the other side of a cut, so more than half of those that are not
    ///                            seen to be dead must be here, else NO_MAJORITY. 1: half of them may go on too, if the lowest is
    ///                            among them; of two ranks, rank 0. 0 (default)
    pub allow_half: i32,
    /// new ranks of a host on which three ranks have died within 10 minutes are kept out for so long
    ///                            after the last death, and twice as long after each further one, up to 10 minutes (default
    ///                            10,000). Not where the group has no rank on another host. 0: never
    pub cool_down_ms: i64,
}

/// What a recovery came to. The caller sets struct_size. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_recovery {
    /// sizeof(ddp_recovery)
    pub struct_size: i64,
    /// 1 for the group as it was created, and one more with each recovery; the same on all ranks
    pub generation: i64,
    /// of this rank, now
    pub rank: i32,
    /// number of ranks, now
    pub size: i32,
    /// of this rank, before
    pub previous_rank: i32,
    /// number of ranks, before
    pub previous_size: i32,
    /// rank (of now) whose parameters, buffers and optimizer all ranks have now, because it was not
    ///                               ahead of others; -1: all had the same, or there is no model, or the group went back to what
    ///                               was kept. What the program keeps itself it sends from there (ddp_group_broadcast)
    pub source: i32,
    /// 0
    pub reserved: i32,
    /// how long the call took
    pub seconds: f64,
    /// of the state that all ranks have now: steps that all optimizers have made, as they count them.
    ///                               Repeat step + 1. -1: no optimizer counts, or a checkpoint has to be loaded
    pub step: i64,
    /// steps that had been made and have to be repeated, because the group went back to what
    ///                               ddp_state_keep had kept; 0 if it did not
    pub went_back: i64,
    /// `epoch` of the state that was kept; -1: the group did not go back to one
    pub kept_epoch: i64,
    /// `step` of the same; ddp_group_get_kept gives the program's own bytes. All that the program
    ///                               keeps itself goes back with it. -1: as above
    pub kept_step: i64,
}

/// The last known progress of a rank. The caller sets struct_size. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_rank_progress {
    /// sizeof(ddp_rank_progress)
    pub struct_size: i64,
    /// backward pass in which it was, counted from 0; -1: none yet
    pub pass_index: i64,
    /// bucket of that pass; -1: none
    pub bucket: i32,
    /// 1: it was in `call`; 0: it had returned from it, and computed
    pub in_call: i32,
    /// seconds since its last heartbeat; about 0 for this rank
    pub silent: f64,
    /// the last collective call that it made, for ddp_call_name(); 0: none yet
    pub call: i32,
    /// 0
    pub reserved: i32,
}

/// Which parts of the global batch a rank works on. The caller sets struct_size. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_virtual_ranks {
    /// sizeof(ddp_virtual_ranks)
    pub struct_size: i64,
    /// parts in all: the group option virtual_ranks, or without it the number of ranks
    pub total: i32,
    /// of this rank; the `rank` of a ddp_sampler whose `size` is `total`
    pub first: i32,
    /// of this rank, 1 or more: `first` to first + count - 1
    pub count: i32,
    /// 0
    pub reserved: i32,
}

/// a call that was posted
#[repr(C)]
pub struct ddp_request {
    _private: [u8; 0],
    _pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Options of an outer optimizer, equal on all ranks. Fill with ddp_outer_options_init(), then change. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_outer_options {
    /// set by init
    pub struct_size: i64,
    /// steps between two exchanges of a parameter, 1 or more (default 100)
    pub every: i64,
    /// steps for which an exchange may be under way, 0 to every - 1. 0 (default): the step in which it is
    ///                       due waits for it
    pub overlap: i64,
    /// of the outer optimizer, above 0 (default 0.7)
    pub rate: f64,
    /// 0 to below 1 (default 0.9)
    pub momentum: f64,
    /// share of a rank's own values in what follows an exchange, 0 to below 1: value = keep * own + (1 - keep) *
    ///                   global. 0 (default): all ranks go on from the global values. With overlap, 0.5 keeps a part of the steps
    ///                   that were made meanwhile; the replicas then differ until ddp_outer_sync
    pub keep: f64,
    /// parts of the model that are exchanged at different steps, spread evenly over `every`, 1 to 1,024
    ///                         (default 1): the bytes of a step at most shrink by so much
    pub fragments: i32,
    /// 1 (default): Nesterov's momentum; 0: the plain one
    pub nesterov: i32,
    /// of an element of a movement when it is sent: 32 (default; F64 parameters: 64), 16 (BF16), 8 or 4. With
    ///                    8 and 4, blocks of 256 elements are scaled by their largest magnitude, rounded to integers and
    ///                    gathered; every rank adds them in F32, in the tree over the ranks, so all hold the same bits. F64
    ///                    parameters always travel as they are
    pub bits: i32,
    /// with 8 and 4 bits: 1 (default): what rounding lost is added to the next movement; 0: it is
    ///                              lost. Costs 4 bytes a parameter
    pub error_feedback: i32,
}

/// Numbers of an outer optimizer. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_outer_stats {
    /// set by the caller
    pub struct_size: i64,
    /// ddp_outer_step calls
    pub steps: i64,
    /// fragments that were exchanged
    pub exchanges: i64,
    /// fragments whose exchange has begun and not ended
    pub under_way: i64,
    /// bytes that this rank sent, as in ddp_model_stats
    pub sent_bytes: i64,
    /// time in ddp_outer_step and ddp_outer_sync in which this rank waited for exchanges
    pub wait_ns: i64,
}

pub const DDP_EXPERIMENTAL_VERSION: i32 = 1;

/// Options of a batch normalisation. All ranks must agree. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_batch_norm_options {
    /// set by init
    pub struct_size: i64,
    /// added to the variance (default 1e-5)
    pub epsilon: f64,
    /// share of this batch in the running statistics, 0 to 1 (default 0.1); 1.0 / k in the k-th batch: plain
    ///                       average
    pub momentum: f64,
    /// 1 (default): statistics of this batch; 0: running statistics, and nothing is sent
    pub training: i32,
    /// 1: backward adds to the gradients of weight and bias; 0 (default): it writes them
    pub accumulate: i32,
}

/// Options of a trace. Fill with ddp_trace_options_init(). Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ddp_trace_options {
    /// set by init
    pub struct_size: i64,
    /// events that this rank keeps, of 48 bytes each: the newest; 64 to 67,108,864 (default 65,536)
    pub capacity: i64,
}

extern "C" {
    /// Describe a dense CPU tensor. Fields not named here get their usual value.
    /// @param tensor filled; not NULL
    /// @param data first element; the caller's, not copied
    /// @param dtype element type
    /// @param ndim number of dimensions, 0 to DDP_MAX_DIMENSIONS
    /// @param shape ndim element counts, each 0 or more; may be NULL when ndim is 0
    /// Local, never blocks, any thread.
    /// Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_tensor_init(tensor: *mut ddp_tensor, data: *mut c_void, dtype: ddp_dtype, ndim: i32, shape: *const i64) -> ddp_status;

    /// Version of the loaded library, packed as DDP_VERSION is. Local, any thread, cannot fail. Since 0.1.
    pub fn ddp_version() -> i32;

    /// Version of the loaded library as text, such as "0.1.0". The library's own, valid for ever. Local, any thread.
    /// Since 0.1.
    pub fn ddp_version_string() -> *const c_char;

    /// One line: version, compiler, build type, instruction set in use, and for each module (Gloo, CUDA) the file that was found
    /// when this was called first, or that it was not built. A module that was found may still fail to load. For people and bug
    /// reports: the form may change. The library's own, valid for ever; "" if memory runs out. Local, any thread. Since 0.1.
    pub fn ddp_build_info() -> *const c_char;

    /// Name of a status code, such as "DDP_ERROR_TIMED_OUT"; never NULL. Local, any thread. Since 0.1.
    pub fn ddp_status_name(status: ddp_status) -> *const c_char;

    /// Text of the last call that failed on this thread: one sentence that names the culprit; "" if none failed.
    /// A call that succeeds does not touch it. Valid until this thread's next failing ddp call. Local, any thread. Since 0.1.
    pub fn ddp_last_error() -> *const c_char;

    /// Copy ddp_last_error() into the caller's memory, cut to fit and always terminated.
    /// @param buffer at least `capacity` bytes; NULL is allowed when capacity is 0
    /// @param capacity bytes available
    /// @return bytes the whole text needs with its terminator. Local, any thread, cannot fail. Since 0.1.
    pub fn ddp_copy_last_error(buffer: *mut c_char, capacity: i64) -> i64;

    /// Numbers of the last call that failed on this thread, which ddp_last_error() describes. They are replaced by the next call
    /// that fails on this thread; a call that succeeds does not touch them.
    ///
    /// - parameters that were not marked: the ranks that did not mark them, or that abandoned the pass; the parameters, of each
    ///   rank the first 1,024;
    /// - MISMATCH of replicas: the ranks in the minority, or all if no content is on most ranks; all parameters that differ;
    /// - MISMATCH of ddp_model_commit: the ranks that differ from rank 0; the first parameter that differs, with its bytes;
    /// - any other MISMATCH: the ranks that differ from rank 0, or the ranks of the message, with its bytes;
    /// - PEER_FAILED and ABORTED: the rank that died, failed or left; TIMED_OUT: the ranks that are late;
    /// - DIFFERENT_CALLS: two ranks and both calls; bytes, if the same call has other sizes;
    /// - TOO_FEW_RANKS: the ranks that are dead; NO_MAJORITY: those that are out of reach.
    /// @param out_details filled; struct_size set by the caller
    /// Local, any thread. Errors: INVALID_ARGUMENT (which replaces the error that was asked for). Since 0.1.
    pub fn ddp_get_error_details(out_details: *mut ddp_error_details) -> ddp_status;

    /// The ranks of ddp_get_error_details, in the group of the failed call.
    /// @param ranks filled with at most `capacity` ranks, ascending, of at most DDP_MAX_ERROR_LIST; NULL if capacity is 0
    /// @param out_count how many ranks the error is about, whatever the capacity, also if it is more than DDP_MAX_ERROR_LIST
    /// Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_get_error_ranks(ranks: *mut i32, capacity: i32, out_count: *mut i32) -> ddp_status;

    /// The parameters of ddp_get_error_details, as their indices in the model of the failed call.
    /// @param indices filled with at most `capacity` indices, ascending, of at most DDP_MAX_ERROR_LIST; NULL if capacity is 0
    /// @param out_count how many parameters the error is about, whatever the capacity
    /// Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_get_error_parameters(indices: *mut i32, capacity: i32, out_count: *mut i32) -> ddp_status;

    /// Name of a call as in ddp_error_details and ddp_rank_progress: "ddp_group_barrier"; "" for 0 and for any other number.
    /// Constant text; the numbers may be others in another version of the library. Local, any thread. Since 0.1.
    pub fn ddp_call_name(call: i32) -> *const c_char;

    /// Choose where log messages go. Listeners (ddp_add_log_listener) get them too, whatever is set here.
    /// Without a call messages of WARNING and above go to stderr; DDP_LOG=debug|info|warning|error|off changes the level.
    /// @param min_level messages below it are dropped
    /// @param fn receiver; NULL restores stderr
    /// @param user_data handed to fn
    /// Local, any thread; returns when no call of the former receiver is in progress.
    /// Errors: INVALID_ARGUMENT (unknown level). Since 0.1.
    pub fn ddp_set_log(min_level: ddp_log_level, fn_: ddp_log_fn, user_data: *mut c_void) -> ddp_status;

    /// Add a receiver of log messages, for a library or a framework that shares the process with others. Every listener gets each
    /// message of its level and above, in the order in which they were added.
    /// @param min_level messages below it are dropped; DDP_LOG_OFF: all
    /// @param fn receiver; not NULL. The same function may be added several times
    /// @param user_data handed to fn; the caller's, until ddp_remove_log_listener has returned
    /// @param out_listener its number, for ddp_remove_log_listener
    /// Local, any thread, also inside a listener, which does not get the message that is being handed over.
    /// Errors: INVALID_ARGUMENT, OUT_OF_MEMORY (64 listeners are there). Since 0.1.
    pub fn ddp_add_log_listener(min_level: ddp_log_level, fn_: ddp_log_listener_fn, user_data: *mut c_void, out_listener: *mut i64) -> ddp_status;

    /// Remove a listener. When this returns it is not running, and is never called again. Inside the listener itself, on the same
    /// thread: it is not called again when that call has returned.
    /// @param listener of ddp_add_log_listener; 0 and a number that was removed already are ignored
    /// Local, any thread; waits for a message that is being handed over on another thread. Errors: INVALID_ARGUMENT (a number
    /// that was never given out). Since 0.1.
    pub fn ddp_remove_log_listener(listener: i64) -> ddp_status;

    /// Write the defaults.
    /// @param options filled; not NULL
    /// @param struct_size sizeof(ddp_group_options) as the caller sees it
    /// Local, never blocks, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_group_options_init(options: *mut ddp_group_options, struct_size: i64) -> ddp_status;

    /// Meet the other ranks and form a group. With a world size of 1 nothing is opened and every collective is a local no-op.
    /// @param rendezvous where the ranks meet; NULL means "env://". A `#name` at its end tells apart several groups that meet
    ///        at one place.
    ///        - `env://` reads what torchrun, Open MPI, MPICH, Slurm, Kubernetes indexed jobs or ddprun set;
    ///        - `tcp://host:port` rank 0 listens there;
    ///        - `file:///path` a file on a file system that all ranks see;
    ///        - `local://name` the ranks are threads of this process;
    ///        - `store://` the callbacks in `options->store`.
    /// @param options NULL: all defaults
    /// @param out_group the new group; destroy with ddp_group_destroy
    /// Collective, blocks up to rendezvous_timeout_ms. Different threads may create different groups at the same time.
    /// Environment: DDP_TOKEN or DDP_TOKEN_FILE (shared secret of 16 bytes or more that admits ranks), DDP_LINKS,
    /// DDP_SOCKET_IFNAME (network interfaces), DDP_PORT_RANGE, DDP_MODULE_PATH.
    /// Errors: INVALID_ARGUMENT (rank, size or rendezvous that cannot be right), IO (port in use, name not found, wrong token),
    /// TIMED_OUT (names the ranks that did not come), PEER_FAILED (a rank that had connected died, or cannot be reached for
    /// data), MISMATCH (sizes, versions or options differ), NOT_SUPPORTED (backend not available, and why), OUT_OF_MEMORY. The
    /// process may try again at once. With `nccl_comm` NCCL is started here; on all ranks INVALID_ARGUMENT if the communicator of
    /// some rank has another size, rank or GPU than its group, or has failed, and NOT_SUPPORTED if the process has not loaded the
    /// NCCL that made it. Since 0.1.
    pub fn ddp_group_create(rendezvous: *const c_char, options: *const ddp_group_options, out_group: *mut *mut ddp_group) -> ddp_status;

    /// Divide a group: ranks that give the same color become a group of their own, as with MPI_Comm_split and ncclCommSplit. The
    /// new group has its own connections and memory, so it works independently of its parent, also while a pass is open there.
    /// Destroy both in any order. A rank that fails breaks each group it is in; error texts of the new group also give the rank
    /// in the group that ddp_group_create made ("rank 1 (world rank 3, ...").
    /// @param color 0 or more; DDP_NO_COLOR: this rank gets no group
    /// @param key ranks of the new group are numbered by key, and by their rank in `group` where keys are equal
    /// @param options NULL: those of `group`, without nccl_comm. Otherwise rank, world_size and store must be as
    ///        ddp_group_options_init left them; all ranks of a color give the same backend. nccl_comm is one of the color's ranks
    /// @param out_group the new group; NULL with DDP_NO_COLOR. Destroy with ddp_group_destroy
    /// Collective over `group`, blocks up to rendezvous_timeout_ms; not in an open pass.
    /// Errors: as ddp_group_barrier; INVALID_ARGUMENT; MISMATCH (different backends), NOT_SUPPORTED, IO and OUT_OF_MEMORY (no
    /// address, no shared memory) on all ranks of `group`, which stays usable, and no rank gets a new group. Since 0.1.
    pub fn ddp_group_split(group: *mut ddp_group, color: i32, key: i32, options: *const ddp_group_options, out_group: *mut *mut ddp_group) -> ddp_status;

    /// Leave the group and release it. Pending work is dropped and the other ranks are informed that this one left.
    /// Local; returns within 2 s also when peers are dead. Where NCCL was started, it waits for all ranks' GPUs to end what is
    /// enqueued and for NCCL's own end, as long as no rank fails: 10 s and half a second a rank at most, or timeout_ms if that is
    /// less. NULL and an already destroyed group are ignored. Models made from
    /// the group stay valid objects; their collectives then return INVALID_STATE. In a fork of the process that made the group
    /// the call does nothing, and the other ranks are not informed. A process that ends by exit() or by a return from main, from
    /// any thread, leaves its groups by itself: the other ranks get ABORTED ("... exited without ddp_group_destroy ..."). exit()
    /// waits for that, 5 s at most; an atexit() handler that was set up before the group was made then finds a group that can
    /// only be destroyed. A process that ends in another way (_exit, quick_exit, a signal) is a dead rank. Of a group that has
    /// broken the memory that is still used is moved: no thread writes to it meanwhile. Since 0.1.
    pub fn ddp_group_destroy(group: *mut ddp_group);

    /// Break the group on purpose: everything pending or later on it fails with ABORTED, here at once and on the other ranks
    /// within a second, with `reason` in the text.
    /// @param reason one sentence for the error text; NULL is allowed
    /// Local, never blocks, any thread at any time. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_group_abort(group: *mut ddp_group, reason: *const c_char) -> ddp_status;

    /// Is the group whole? DDP_OK, or the first cause that broke it (its text becomes ddp_last_error()). A broken group stays
    /// broken: its calls, and those of its models, repeat this cause until ddp_group_recover has succeeded. The status of another
    /// call does not always say whether the group is broken; this function does.
    /// Local, any thread. Errors: INVALID_ARGUMENT, INVALID_STATE (destroyed), and the first cause. Since 0.1.
    pub fn ddp_group_status(group: *const ddp_group) -> ddp_status;

    /// This rank's number, 0 to size - 1; -1 if `group` is not a group. Local, any thread. Since 0.1.
    pub fn ddp_group_get_rank(group: *const ddp_group) -> i32;

    /// Number of this group in this process: 1 for the first one that was created, and never used again; the same after
    /// ddp_group_recover. Other ranks may have another number for it. As in ddp_log_message. 0 if `group` is not a group.
    /// Local, any thread. Since 0.1.
    pub fn ddp_group_get_number(group: *const ddp_group) -> i64;

    /// Number of ranks; -1 if `group` is not a group. Local, any thread. Since 0.1.
    pub fn ddp_group_get_size(group: *const ddp_group) -> i32;

    /// What the group really uses (never AUTO when the world size is above 1). Local, any thread. Since 0.1.
    pub fn ddp_group_get_backend(group: *const ddp_group) -> ddp_backend;

    /// Return when all ranks have called. Collective, blocks.
    /// Errors: TIMED_OUT, PEER_FAILED, ABORTED, DIFFERENT_CALLS (another rank made another call, whatever the two are: all ranks
    /// learn both calls within a second of the last one), each of which breaks the group; INVALID_STATE (a pass is open on this
    /// group); OUT_OF_MEMORY (this rank; the others get PEER_FAILED and the group is broken). They hold for all collectives
    /// below.
    /// Since 0.1.
    pub fn ddp_group_barrier(group: *mut ddp_group) -> ddp_status;

    /// Reduce a tensor over all ranks, in place: afterwards every rank holds the same bits.
    /// The sum is formed in a balanced tree over the ranks (include/BITS.md, "How the mean is formed"), so its bits do not
    /// depend on which ranks share a host; F16 and BF16 are added in F32 and rounded once; AVERAGE divides the sum, in the
    /// precision of the sum, before that rounding; integers wrap, and their AVERAGE is truncated towards zero; of complex numbers
    /// there are SUM and AVERAGE.
    /// @param tensor this rank's contribution, replaced by the result; same dtype and element count on all ranks; not NULL
    /// @param op AVERAGE, SUM, MIN or MAX (a NaN on any rank gives NaN)
    /// A tensor on a GPU is added by NCCL: the same bits on every rank, but in an order that NCCL chooses; the AVERAGE of
    /// integers is not supported there. With the group option `reproducible` all of the above holds there too.
    /// @param stream of a tensor on a GPU: the call waits for the other ranks' calls, not for the device, and the result is there
    ///        in the order of this stream
    /// Collective, blocks on CPU. Errors: as ddp_group_barrier, and INVALID_ARGUMENT, NOT_SUPPORTED (no CUDA module, driver, GPU
    /// or NCCL, and which).
    /// Since 0.1.
    pub fn ddp_group_all_reduce(group: *mut ddp_group, tensor: *const ddp_tensor, op: ddp_reduce, stream: *mut c_void) -> ddp_status;

    /// Collect the tensors of all ranks on every rank.
    /// @param input n elements, the same n and dtype on all ranks
    /// @param output size * n elements; rank r's input lands at element r * n; may contain `input` at its own place
    /// Collective, blocks on CPU. Errors: as ddp_group_all_reduce. Since 0.1.
    pub fn ddp_group_all_gather(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, stream: *mut c_void) -> ddp_status;

    /// Reduce over all ranks and keep one part: rank r receives elements r * n to (r + 1) * n of the reduced input.
    /// @param input size * n elements
    /// @param output n elements; may be the own part of `input`
    /// @param op as in ddp_group_all_reduce, with the same bits. The mean of F16 on a GPU takes memory as large as `input` at
    ///        the first call, which cannot be captured into a graph
    /// Collective, blocks on CPU. Errors: as ddp_group_all_reduce. Since 0.1.
    pub fn ddp_group_reduce_scatter(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, op: ddp_reduce, stream: *mut c_void) -> ddp_status;

    /// Copy rank `root`'s tensor to all ranks, in place.
    /// Collective, blocks on CPU. Errors: as ddp_group_all_reduce. Since 0.1.
    pub fn ddp_group_broadcast(group: *mut ddp_group, tensor: *const ddp_tensor, root: i32, stream: *mut c_void) -> ddp_status;

    /// Reduce a few host numbers (loss sum, number of samples, number right) in one message.
    /// Sum first and divide afterwards: with unequal sample counts an average of averages is wrong.
    /// @param values `count` doubles, replaced by the result, the same bits on every rank
    /// @param count 1 to 1,024
    /// Collective, blocks. Errors: as ddp_group_all_reduce. Since 0.1.
    pub fn ddp_group_reduce_metrics(group: *mut ddp_group, values: *mut f64, count: i64, op: ddp_reduce) -> ddp_status;

    /// Memory within reach of the other ranks of this host: parameters and gradients in it are reduced in place,
    /// without a copy. Zeroed, aligned to 64 bytes. In a group made with DDP_BACKEND_NCCL it is memory of this rank's GPU,
    /// from ncclMemAlloc.
    /// @param bytes 1 or more
    /// @param out_data the memory; free with ddp_group_free, at the latest before ddp_group_destroy, which frees the rest
    /// Local. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT; of a GPU also INTERNAL with NCCL's words. Since 0.1.
    pub fn ddp_group_alloc(group: *mut ddp_group, bytes: i64, out_data: *mut *mut c_void) -> ddp_status;

    /// Free memory from ddp_group_alloc. Destroy all models that use it before. Local; memory of a GPU is freed when what is
    /// enqueued there is done, which this waits for. NULL data is ignored.
    /// Errors: INVALID_ARGUMENT (not from this group, or freed already). Since 0.1.
    pub fn ddp_group_free(group: *mut ddp_group, data: *mut c_void) -> ddp_status;

    /// Send a tensor to one other rank. Messages of one rank to another with one tag are received in the order in which they
    /// were sent. A message of up to 64 KiB is copied and returns at once while there is room: 128 KiB for each receiver on one
    /// host, between hosts what the system keeps for a connection. The receiver makes room while it works on messages (see
    /// above), until it has 1 MiB of this rank that it has not received. A longer message, or one more, waits for its receive.
    /// @param tensor not changed until the call returns; any size, also empty
    /// @param peer rank of the receiver; not this rank
    /// @param tag 0 or more, for ddp_group_receive to tell messages apart
    /// @param stream of a tensor on a GPU
    /// Local to the two ranks, blocks up to timeout_ms. Any thread, beside other calls on the group and while a pass is open; not
    /// from a function that the library has called.
    /// Errors: INVALID_ARGUMENT, NOT_SUPPORTED, INVALID_STATE (destroyed, or as above); MISMATCH (the receive there is for
    /// another type or number of elements, which that rank gets as well; the group stays whole. The sender of a message that was
    /// copied has returned by then, and says it in its log); TIMED_OUT (names the rank that did not receive, and the tag),
    /// PEER_FAILED, ABORTED, DIFFERENT_CALLS (see above), OUT_OF_MEMORY, each of which breaks the group; IO (no port of
    /// DDP_PORT_RANGE is free). Since 0.1.
    pub fn ddp_group_send(group: *mut ddp_group, tensor: *const ddp_tensor, peer: i32, tag: i64, stream: *mut c_void) -> ddp_status;

    /// Receive a tensor that another rank sends with the same tag, type and number of elements.
    /// @param tensor filled; not used by others until the call returns
    /// @param source rank of the sender; not this rank. DDP_ANY_SOURCE: whichever has sent first; which one that is may differ
    ///        from run to run, and so may what is computed from it
    /// @param tag 0 or more
    /// @param out_source the rank that sent; may be NULL
    /// @param stream of a tensor on a GPU; the received values are there in its order
    /// Local to the two ranks, blocks up to timeout_ms. Threads as ddp_group_send: one may send while another receives.
    /// Errors: as ddp_group_send; MISMATCH (the message has another type or number of elements; it is dropped); TIMED_OUT (names
    /// the rank that did not send, the tag, and the tags of messages of it that nobody has received). A rank that left in good
    /// order has sent what it sent: that is received, and what it did not send is ABORTED. So is a message to or from another
    /// host if it would be the pair's first one after any rank has left, without the group option `connect_all`. Since 0.1.
    pub fn ddp_group_receive(group: *mut ddp_group, tensor: *const ddp_tensor, source: i32, tag: i64, out_source: *mut i32, stream: *mut c_void) -> ddp_status;

    /// Reduce a tensor over all ranks, to one of them, in place: `root` gets the bits that ddp_group_all_reduce gives.
    /// @param tensor this rank's contribution; the result on `root`, undefined afterwards on the others; same type and element
    ///        count on all ranks
    /// @param op AVERAGE, SUM, MIN, MAX or PRODUCT
    /// @param root rank that gets the result; equal on all ranks
    /// @param stream of a tensor on a GPU, as in ddp_group_all_reduce
    /// Collective, blocks on CPU. The algorithm is that of ddp_group_all_reduce, as all ranks share the work. Errors: as
    /// ddp_group_all_reduce. Since 0.1.
    pub fn ddp_group_reduce(group: *mut ddp_group, tensor: *const ddp_tensor, op: ddp_reduce, root: i32, stream: *mut c_void) -> ddp_status;

    /// Collect the tensors of all ranks on one rank.
    /// @param input n elements, the same n and type on all ranks
    /// @param output size * n elements on `root`: rank r's input is put at element r * n; may contain `input` at its own place.
    ///        On the other ranks NULL is allowed
    /// @param root rank that collects; equal on all ranks
    /// @param stream of tensors on a GPU
    /// Collective, blocks on CPU: each other rank sends one message. Errors: as ddp_group_barrier; INVALID_ARGUMENT,
    /// NOT_SUPPORTED, INVALID_STATE. Since 0.1.
    pub fn ddp_group_gather(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, root: i32, stream: *mut c_void) -> ddp_status;

    /// Give each rank a part of one rank's tensor.
    /// @param input size * n elements on `root`: rank r gets those from element r * n on. On the other ranks NULL is allowed
    /// @param output n elements, the same n and type on all ranks; may be the own part of `input`
    /// @param root rank that gives; equal on all ranks
    /// @param stream of tensors on a GPU
    /// Collective, blocks on CPU: each other rank gets one message. Errors: as ddp_group_gather. Since 0.1.
    pub fn ddp_group_scatter(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, root: i32, stream: *mut c_void) -> ddp_status;

    /// Give each rank a part of this rank's tensor, and get one of each: the parts lie one behind the other, by rank.
    /// @param input what this rank gives
    /// @param output what it gets; of the same type, and it does not overlap `input`
    /// @param input_counts for each rank the elements that it gets; size numbers, which add up to those of `input`. NULL: as many
    ///        for each
    /// @param output_counts for each rank the elements that come from it, as that rank's input_counts say; NULL: as many of each
    /// @param stream of tensors on a GPU
    /// Collective, blocks on CPU: the ranks compare their counts, then each pair exchanges two messages, all pairs at once.
    /// Errors: as ddp_group_gather; MISMATCH on all ranks (a rank gives another one more or fewer elements than that one expects;
    /// both are named, nothing is written, and the group stays whole). Since 0.1.
    pub fn ddp_group_all_to_all(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, input_counts: *const i64, output_counts: *const i64, stream: *mut c_void) -> ddp_status;

    /// Collect tensors of different sizes of all ranks on every rank.
    /// @param input counts[rank] elements
    /// @param output the inputs of all ranks, one behind the other; may contain `input` at its own place
    /// @param counts for each rank the elements that it gives; size numbers, equal on all ranks
    /// @param stream of tensors on a GPU
    /// Collective, blocks on CPU: the ranks compare their counts; then small inputs are gathered at once, and larger ones are
    /// broadcast one after the other. Errors: as ddp_group_gather; MISMATCH on all ranks (counts or types differ; the group stays
    /// whole). Since 0.1.
    pub fn ddp_group_all_gather_counts(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, counts: *const i64, stream: *mut c_void) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_model_options_init(options: *mut ddp_model_options, struct_size: i64) -> ddp_status;

    /// Make an empty model. Local.
    /// @param group the ranks that train it; kept alive by the model
    /// @param options NULL: all defaults; copied
    /// @param out_model destroy with ddp_model_destroy
    /// Errors: INVALID_ARGUMENT, INVALID_STATE (group destroyed), OUT_OF_MEMORY. Since 0.1.
    pub fn ddp_model_create(group: *mut ddp_group, options: *const ddp_model_options, out_model: *mut *mut ddp_model) -> ddp_status;

    /// Release the model. After it returns libddp does not use the lent tensors any more; gradients that libddp owned are freed.
    /// Local. In an open pass the group is aborted, because the other ranks wait for this one. NULL and a destroyed model are
    /// ignored. Optimizers and averages made from the model stay valid objects; their calls then return INVALID_STATE. Since 0.1.
    pub fn ddp_model_destroy(model: *mut ddp_model);

    /// Lend a parameter. Registration order should be the order of the forward computation: gradients then arrive in reverse, as
    /// the buckets expect them.
    /// @param model in the building state
    /// @param name unique, 1 to 1,024 bytes of UTF-8; used in errors and in checkpoints, unchanged
    /// @param value the parameter: F32, F64, F16, BF16, C64 or C128, in host memory or on this rank's GPU; used until the model
    ///        is destroyed (with own_values: until ddp_model_commit, on a GPU in the order of its stream)
    /// @param grad its gradient, of the same shape and dtype, in the same place; used until the model is destroyed. NULL: libddp
    ///        owns the gradient, inside the bucket, where it is reduced without a copy; ask ddp_model_get_grad() after commit
    /// @param out_index its number, counted from 0; may be NULL
    /// Local. Errors: INVALID_ARGUMENT (NULL, name taken, memory overlaps another tensor, memory of a GPU given as the host's),
    /// INVALID_STATE (committed), NOT_SUPPORTED (dtype; a GPU without module or driver). Since 0.1.
    pub fn ddp_model_add_parameter(model: *mut ddp_model, name: *const c_char, value: *const ddp_tensor, grad: *const ddp_tensor, out_index: *mut i32) -> ddp_status;

    /// ddp_model_add_parameter for the common case: a flat F32 array with its gradient.
    /// @param name as for ddp_model_add_parameter
    /// @param data the parameter: `count` elements in host memory
    /// @param grad its gradient, as many elements; NULL: libddp owns it
    /// @param count elements, 0 or more
    /// @param out_index its number, counted from 0; may be NULL
    /// Local. Errors: as ddp_model_add_parameter. Since 0.1.
    pub fn ddp_model_add_array(model: *mut ddp_model, name: *const c_char, data: *mut f32, grad: *mut f32, count: i64, out_index: *mut i32) -> ddp_status;

    /// Lend a parameter whose gradient comes later, for frameworks that allocate gradients in each pass: ddp_model_set_grad gives
    /// it, and may do so before ddp_model_commit. Until then libddp writes nothing to the parameter's gradient. Refused with
    /// INVALID_STATE and the parameter's name, while it has no gradient: its marks; a pass that ends without its mark, also with
    /// DDP_UNUSED_ALLOW, because the result has no place (on all ranks); ddp_model_skip_backward; ddp_optimizer_step; and what
    /// reads or changes gradients, but ddp_model_zero_grad leaves it out. ddp_model_abandon_backward and ddp_model_join need
    /// none: they may take as much memory as the gradient has.
    /// @param name as for ddp_model_add_parameter
    /// @param value as for ddp_model_add_parameter, in host memory
    /// @param out_index its number, counted from 0; may be NULL
    /// Local. Errors: as ddp_model_add_parameter; NOT_SUPPORTED (a value on a GPU), OUT_OF_MEMORY (addresses for as many bytes,
    /// which take no memory). Since 0.1.
    pub fn ddp_model_add_parameter_without_grad(model: *mut ddp_model, name: *const c_char, value: *const ddp_tensor, out_index: *mut i32) -> ddp_status;

    /// Lend a tensor that is not trained but belongs to the model (running statistics, tables): any dtype. It gets rank 0's
    /// values at commit and is part of checkpoints. Arguments and errors as in ddp_model_add_parameter; buffers and parameters
    /// share one space of names. Local. Since 0.1.
    pub fn ddp_model_add_buffer(model: *mut ddp_model, name: *const c_char, value: *const ddp_tensor, out_index: *mut i32) -> ddp_status;

    /// Agree with all ranks on the model: names, shapes, dtypes, order and options are compared in one exchange; rank 0's values
    /// go to every rank; buckets are planned; gradients that libddp owns are allocated and zeroed.
    /// Collective, blocks. Errors: MISMATCH (the same text on every rank: the first difference and which rank has which; the
    /// model stays in the building state), INVALID_STATE (already committed), OUT_OF_MEMORY, and those of collectives. Since 0.1.
    pub fn ddp_model_commit(model: *mut ddp_model, stream: *mut c_void) -> ddp_status;

    /// Number of parameters registered so far; -1 if `model` is not a model. Local. Since 0.1.
    pub fn ddp_model_get_parameter_count(model: *const ddp_model) -> i32;

    /// Where the gradient of a parameter lives. The address never changes until ddp_model_set_grad or ddp_model_destroy.
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (libddp owns it and the model is not committed; or the parameter was added
    /// without a gradient and has none). Since 0.1.
    pub fn ddp_model_get_grad(model: *const ddp_model, index: i32, out_grad: *mut ddp_tensor) -> ddp_status;

    /// Where the value of a parameter lives: the lent tensor, or with own_values from ddp_model_commit on memory of libddp, which
    /// is freed with the model. The address never changes after ddp_model_commit.
    /// Local. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_model_get_value(model: *const ddp_model, index: i32, out_value: *mut ddp_tensor) -> ddp_status;

    /// Give this pass's memory of a gradient, for frameworks whose gradients move. Call before ddp_model_mark_ready of that
    /// parameter. For a parameter with a gradient of the program, or added by ddp_model_add_parameter_without_grad.
    /// @param grad as many elements as the parameter has, of its dtype and in the same place; its shape does not matter. Its
    ///        memory is used until the next set_grad. It may be memory that another gradient had in an earlier pass; two
    ///        gradients of one pass must not overlap (ddp_model_mark_ready). NULL, for a parameter that was added without a
    ///        gradient: it has none any more, and libddp does not use its memory again
    /// Local. Errors: INVALID_ARGUMENT (also: another dtype, number of elements or place; it overlaps a parameter, a buffer, or a
    /// gradient that libddp owns), INVALID_STATE (already marked in this pass, libddp owns the gradient, or it is in
    /// ddp_group_alloc memory and is reduced there). Since 0.1.
    pub fn ddp_model_set_grad(model: *mut ddp_model, index: i32, grad: *const ddp_tensor) -> ddp_status;

    /// Copy all buffers from one rank to the others. No other call does this: call it before evaluation, before saving, or before
    /// forward if the model needs it.
    /// @param root the rank whose values win
    /// Collective, blocks. Errors: as for collectives, INVALID_STATE (not committed, or a pass is open). Since 0.1.
    pub fn ddp_model_sync_buffers(model: *mut ddp_model, root: i32, stream: *mut c_void) -> ddp_status;

    /// Are parameters and buffers bitwise equal on all ranks? Compares content hashes. The option check_every does the same for
    /// parameters after every k-th pass.
    /// Collective, blocks. Errors: MISMATCH names the first tensor that differs, parameters before buffers, and the ranks in the
    /// minority. If only buffers differ, as the running means of batch normalisation do, the text advises ddp_model_sync_buffers.
    /// Since 0.1.
    pub fn ddp_model_check_replicas(model: *mut ddp_model, stream: *mut c_void) -> ddp_status;

    /// One 64-bit hash over the names and contents of all parameters, on this rank (XXH3). Equal on all ranks if they hold the
    /// same model.
    /// Local. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_model_get_hash(model: *const ddp_model, out_hash: *mut i64) -> ddp_status;

    /// Numbers of the last and of all passes. `out_stats->struct_size` must be set to sizeof(ddp_model_stats) by the caller.
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed). Since 0.1.
    pub fn ddp_model_get_stats(model: *const ddp_model, out_stats: *mut ddp_model_stats) -> ddp_status;

    /// The bucket plan as text: one line per bucket with its size, way (in place, staged) and parameters.
    /// @param buffer receives at most `capacity` bytes, terminated; NULL is allowed when capacity is 0
    /// @param out_needed bytes the whole text needs with its terminator; may be NULL
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed). Since 0.1.
    pub fn ddp_model_describe_plan(model: *const ddp_model, buffer: *mut c_char, capacity: i64, out_needed: *mut i64) -> ddp_status;

    /// Open a pass. While it is open the user's blocking collectives on the same group are refused; code that must make them
    /// inside backward uses a second group.
    /// The passes of several models of a group may be open at the same time: a generator's loss goes through a discriminator, or
    /// one model is a part of another. Their gradients may be marked in any order. End the passes in the same order on all ranks.
    /// The first 8 models of a group can do so; passes that reduce gradients on a GPU are open one at a time.
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed; a pass of the model, or one that excludes it, is open; the
    /// step that an optimizer with in_backward made within the last pass was not ended by ddp_optimizer_step; or a failed pass or
    /// load has changed a part of the parameters, which a load mends), and the first cause if the group is broken. Since 0.1.
    pub fn ddp_model_begin_backward(model: *mut ddp_model, mode: ddp_pass) -> ddp_status;

    /// The gradient of parameter `index` is complete. When it completes the next bucket in plan order, that bucket's reduction
    /// starts, whatever the order of marking (src/README.md, "Why order is fixed").
    /// From here to the return of ddp_model_end_backward the gradient belongs to libddp: neither read nor write it.
    /// @param stream of a gradient on a GPU: the stream on which it was written, valid until the pass has ended; what is enqueued
    ///        there by now comes before the reduction. Gradients of one pass may come on several streams. NULL: the legacy
    ///        default stream
    /// Local, never waits, constant time, no allocation. Any thread, between begin and end.
    /// Errors: INVALID_ARGUMENT (index; or ddp_model_set_grad gave memory that overlaps the gradient of another parameter in this
    /// pass: the text names both, and the gradient is not marked), INVALID_STATE (no open pass, or marked twice: mark a shared
    /// parameter on its last use), and the first cause if the group is broken and no pass is open. A failed communication is
    /// reported by ddp_model_end_backward. Since 0.1.
    pub fn ddp_model_mark_ready(model: *mut ddp_model, index: i32, stream: *mut c_void) -> ddp_status;

    /// As ddp_model_mark_ready, for a part of a gradient: one tensor that holds many layers, of which each is final at its own
    /// time. The gradient is marked when each of its elements is, once. In a pass a gradient is marked either by ranges or as a
    /// whole. Of a gradient that is larger than a bucket (bucket_bytes) a piece is reduced, and with in_backward updated, as soon
    /// as its elements are marked; pieces are taken from the last elements on.
    /// @param first the first element of the range, in the flattened gradient
    /// @param count elements, 1 or more
    /// Local, any thread, time by the number of ranges that do not touch. Errors: INVALID_ARGUMENT (index; a range outside the
    /// gradient; overlapping gradients), INVALID_STATE (no open pass, elements that are marked already), and the first cause, as
    /// ddp_model_mark_ready; then nothing is marked. A pass that ends with a
    /// part of a gradient missing fails as one with parameters that are not marked, also with DDP_UNUSED_ALLOW, and names the
    /// elements. Since 0.1.
    pub fn ddp_model_mark_range_ready(model: *mut ddp_model, index: i32, first: i64, count: i64, stream: *mut c_void) -> ddp_status;

    /// The gradient of parameter `index` will not come in this pass on this rank; its bucket need not wait for it. What passes
    /// have accumulated in it since the last reduction contributes, else zero. Needs DDP_UNUSED_ALLOW.
    /// The mark brings no stream. Of a gradient on a GPU, what is on the stream of ddp_model_end_backward by then comes before
    /// the result is written into it. A bucket of a gradient that was accumulated before starts in that order too.
    /// Local, constant time, any thread. Errors: as ddp_model_mark_ready. Since 0.1.
    pub fn ddp_model_mark_unused(model: *mut ddp_model, index: i32) -> ddp_status;

    /// Close the pass: send what is left, wait for all ranks, and leave the reduced gradients where the gradients live.
    /// The pass is over whatever the result.
    /// Gradients on a GPU: the call waits until the other ranks have called it. It does not wait for the GPU, unless the group
    /// was made with recoverable = 1. The reduced gradients are there in the order of `stream`. A pass may be captured into a
    /// CUDA graph if all its streams are, on all ranks; include/GPU.md, "CUDA graphs", has what else may be captured.
    /// Of the parameters of an optimizer that has `shard`, a rank's gradients are the mean in its own slice only, and values that
    /// a program writes into them between this call and the step counts in that slice alone: a gradient that one rank clears is
    /// not cleared on the others. Use ddp_model_scale_grad, on all ranks.
    /// @param stream on which the gradients are used next; the reduction comes before what is enqueued there from now on. It
    ///        comes after all uses of gradients that were not marked, or marked as unused
    /// Collective in a REDUCE pass (blocks on CPU), local in the others. Errors: INVALID_STATE (no open pass; or, with
    /// DDP_UNUSED_ERROR, parameters that some rank did not mark: the same text on every rank with their names, and the gradients
    /// are undefined until the next zero_grad, but the group stays usable), MISMATCH (with the model option check_every, when
    /// replicas differ; the gradients are reduced), and those of collectives. Since 0.1.
    pub fn ddp_model_end_backward(model: *mut ddp_model, stream: *mut c_void) -> ddp_status;

    /// Did any rank contribute to this parameter in the last REDUCE pass that ended well, or in the accumulation before it
    /// (after a LOCAL pass: did this rank; after ddp_model_mark_reduced: yes)? 1 yes, 0 no (leave its optimizer state alone), -1
    /// if the arguments are wrong or no pass has ended. Local. Since 0.1.
    pub fn ddp_model_was_used(model: *const ddp_model, index: i32) -> i32;

    /// Set all gradients to zero. What was accumulated is forgotten: a parameter counts as used in the next REDUCE pass only if
    /// it is marked again.
    /// Local, not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE. Since 0.1.
    pub fn ddp_model_zero_grad(model: *mut ddp_model, stream: *mut c_void) -> ddp_status;

    /// The program has reduced all gradients of the model over the ranks itself, for example with MPI or ddp_group_all_reduce,
    /// and not in a pass. They then count as the gradients of a REDUCE pass that ended well, in which every parameter was used:
    /// they are good for one step of each optimizer. Call it on all ranks before each such step. The gradients must have the same
    /// bits on all ranks, else the replicas drift apart (ddp_model_check_replicas finds it). What was accumulated is forgotten.
    /// Local, constant time for each parameter, not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed; a
    /// pass is open; the step that an optimizer with in_backward made within the last pass was not ended by ddp_optimizer_step;
    /// the gradients are sums that a step with divide_in_step will divide; or virtual ranks of a step are done and not reduced,
    /// see ddp/virtual_ranks.h). Since 0.1.
    pub fn ddp_model_mark_reduced(model: *mut ddp_model) -> ddp_status;

    /// Norm over all gradients as one vector, in F64: the same bits on every rank after a REDUCE pass.
    /// @param p 1, 2 or INFINITY
    /// @param stream of gradients on a GPU: the host waits for it, so it is not being captured
    /// Local, collective if an optimizer with `shard` is attached; not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE
    /// (a pass is open; or the optimizer with `shard` whose slices the gradients are was destroyed). Since 0.1.
    pub fn ddp_model_get_grad_norm(model: *mut ddp_model, p: f64, out_norm: *mut f64, stream: *mut c_void) -> ddp_status;

    /// Multiply all gradients by `factor` (with the norm above: clipping). Local, not in an open pass.
    /// Errors: INVALID_ARGUMENT, INVALID_STATE (a pass is open; or an optimizer with in_backward has made its step within the
    /// last pass, so that the change would come too late: until ddp_optimizer_step). Since 0.1.
    pub fn ddp_model_scale_grad(model: *mut ddp_model, factor: f64, stream: *mut c_void) -> ddp_status;

    /// Scale all gradients down together so that their norm is at most `max_norm`, as torch.nn.utils.clip_grad_norm_: the factor
    /// is max_norm / (norm + 1e-6), and 1 if that is more. A norm that is not finite makes them NaN or zero. For an optimizer of
    /// your own; the built-in ones clip within their step (max_norm, clip_value).
    /// @param max_norm above 0
    /// @param p 1, 2 or INFINITY
    /// @param out_norm the norm before; may be NULL
    /// @param stream as for ddp_model_get_grad_norm
    /// Local, collective if an optimizer with `shard` is attached; not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE
    /// (as ddp_model_scale_grad and ddp_model_get_grad_norm). Since 0.1.
    pub fn ddp_model_clip_grad_norm(model: *mut ddp_model, max_norm: f64, p: f64, out_norm: *mut f64, stream: *mut c_void) -> ddp_status;

    /// Limit every element of the gradients to a magnitude of `limit`; a NaN stays. Local, not in an open pass.
    /// @param limit above 0
    /// Errors: INVALID_ARGUMENT, INVALID_STATE (as ddp_model_scale_grad). Since 0.1.
    pub fn ddp_model_clip_grad_value(model: *mut ddp_model, limit: f64, stream: *mut c_void) -> ddp_status;

    /// How much this rank's gradients count in the passes that reduce, from the next bucket that starts on: its number of samples
    /// or tokens.
    /// The result of a pass is sum(weight * gradient) / sum(weight) over the ranks. A rank with weight 0 contributes nothing, not
    /// even a NaN; it receives the result. The weight is sent with the gradients, so it must be known before the first bucket
    /// starts: set it before the first ddp_model_mark_ready of the pass. It holds until it is set again; at first it is 1.
    /// @param weight 0, or from 2^-40 to 2^40
    /// Local. Errors: INVALID_ARGUMENT (negative, NaN, out of range), INVALID_STATE (the model option divisor is not
    /// DDP_DIVISOR_WEIGHTS, not committed, or a bucket of this pass has started). Since 0.1.
    pub fn ddp_model_set_weight(model: *mut ddp_model, weight: f64) -> ddp_status;

    /// Say that this rank has no batch after the open pass (or the next one, if none is open). When that pass has ended, every
    /// rank finds it in ddp_model_get_pass_report, so all can stop at the same step without a collective of their own. Call it
    /// before the first ddp_model_mark_ready of the pass.
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed, or a bucket of this pass has started). Since 0.1.
    pub fn ddp_model_set_last_pass(model: *mut ddp_model) -> ddp_status;

    /// Take part in one REDUCE pass without a batch, in the place of begin_backward, mark_ready and end_backward: this rank
    /// contributes nothing and receives the result, so it can step the optimizer like the others. What its gradients held is
    /// overwritten; to send what was accumulated before, open a pass and mark everything.
    /// Collective, blocks; not in an open pass. Errors: as ddp_model_end_backward, and NOT_SUPPORTED (a pulled hook). Since 0.1.
    pub fn ddp_model_skip_backward(model: *mut ddp_model, stream: *mut c_void) -> ddp_status;

    /// Leave the open pass because this rank failed in it: its remaining gradients are not sent, and ddp_model_end_backward
    /// returns INVALID_STATE with this rank's reason on the other ranks instead of waiting. The gradients of the pass are
    /// undefined, the group stays usable. Marks of the pass do not count. No mark of this pass may be in progress on another
    /// thread.
    /// @param reason one sentence for the error text; NULL is allowed
    /// Collective in a REDUCE pass, as the end that it replaces (blocks), local in an ACCUMULATE or LOCAL pass. Errors:
    /// INVALID_STATE (no open pass; or all gradients had been sent: the pass then ended well on every rank), and those of
    /// collectives. Since 0.1.
    pub fn ddp_model_abandon_backward(model: *mut ddp_model, reason: *const c_char, stream: *mut c_void) -> ddp_status;

    /// Who took part in the last REDUCE pass. `out_report->struct_size` must be set to sizeof(ddp_pass_report) by the caller.
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed, or no REDUCE pass has ended). Since 0.1.
    pub fn ddp_model_get_pass_report(model: *const ddp_model, out_report: *mut ddp_pass_report) -> ddp_status;

    /// The ranks that are not among the contributors of the last REDUCE pass, the same on all ranks; with virtual ranks their
    /// numbers. (Which ranks did not mark which parameters: ddp_get_error_details of the failed ddp_model_end_backward.)
    /// @param ranks filled with at most `capacity` ranks, ascending; NULL if capacity is 0
    /// @param out_count how many there are, whatever the capacity
    /// Cost: a pass in which ranks are absent exchanges one more small message if the group has more than 63 ranks.
    /// Local. Errors: as ddp_model_get_pass_report. Since 0.1.
    pub fn ddp_model_get_absent(model: *const ddp_model, ranks: *mut i32, capacity: i32, out_count: *mut i32) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_optimizer_options_init(options: *mut ddp_optimizer_options, struct_size: i64) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_sgd_options_init(options: *mut ddp_sgd_options, struct_size: i64) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_adam_options_init(options: *mut ddp_adam_options, struct_size: i64) -> ddp_status;

    /// Make an optimizer for the parameters in `options`, by default for all that have none. A model may have several, such as
    /// one rule for matrices and another one for the rest; a parameter has one optimizer. ddp_optimizer_step of each is called
    /// after each pass. May come before or after ddp_model_commit and ddp_state_load_file; the result is the same. One exception:
    /// a bucket has the parameters of one optimizer with shard, in_backward or divide_in_step, or of none, and commit cuts the
    /// buckets. So where optimizers with one of these options do not have all parameters together in one, all of them are made
    /// before ddp_model_commit; on a rank that joins others too.
    /// @param rule NULL: all defaults; copied
    /// @param options NULL: all defaults; copied
    /// @param out_optimizer destroy with ddp_optimizer_destroy
    /// Local. Errors: INVALID_ARGUMENT (a value out of its range; an index that is no parameter's, or twice), INVALID_STATE (a
    /// parameter has another optimizer: the text names the parameter and both optimizers; or the exception above),
    /// NOT_SUPPORTED (shard on a model with uneven_inputs), MISMATCH (on a rank that has joined others: not what they have),
    /// OUT_OF_MEMORY. ddp_model_commit: MISMATCH if the ranks have given other parameters, or `shard` for others. Since 0.1.
    pub fn ddp_optimizer_create_sgd(model: *mut ddp_model, rule: *const ddp_sgd_options, options: *const ddp_optimizer_options, out_optimizer: *mut *mut ddp_optimizer) -> ddp_status;

    /// As ddp_optimizer_create_sgd, for Adam and AdamW. Since 0.1.
    pub fn ddp_optimizer_create_adam(model: *mut ddp_model, rule: *const ddp_adam_options, options: *const ddp_optimizer_options, out_optimizer: *mut *mut ddp_optimizer) -> ddp_status;

    /// Release an optimizer; its parameters are free for another one. Local. NULL and an already destroyed optimizer are
    /// ignored. Since 0.1.
    pub fn ddp_optimizer_destroy(optimizer: *mut ddp_optimizer);

    /// Set the learning rate for the steps that follow; schedules are the caller's. All ranks must set the same. Once a step was
    /// captured into a CUDA graph: also for launches that follow; the call then waits until the GPU is idle, as do
    /// ddp_optimizer_set_parameter_options, ddp_optimizer_set_loss_scale and a load.
    /// Local. Errors: INVALID_ARGUMENT (negative or not finite), INVALID_STATE (of an optimizer with in_backward: within a pass,
    /// or behind a pass that has made the step, until ddp_optimizer_step). Since 0.1.
    pub fn ddp_optimizer_set_rate(optimizer: *mut ddp_optimizer, rate: f64) -> ddp_status;

    /// The learning rate in use (after a load: the saved one). Local. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_optimizer_get_rate(optimizer: *const ddp_optimizer, out_rate: *mut f64) -> ddp_status;

    /// Steps taken so far (after a load: the saved number). A step that a pass makes (in_backward) counts when
    /// the pass has ended. If a GPU decides about steps (ddp_optimizer_step), this call, ddp_optimizer_get_loss_scale,
    /// ddp_optimizer_get_skipped_count, ddp_optimizer_get_grad_norm and saving wait for the last step; once a step was captured
    /// into a CUDA graph they wait until the GPU is idle, so they cannot be called while a stream is captured.
    /// Local. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_optimizer_get_step_count(optimizer: *const ddp_optimizer, out_count: *mut i64) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_loss_scale_options_init(options: *mut ddp_loss_scale_options, struct_size: i64) -> ddp_status;

    /// Use a loss scale from the next step on. It is that of all optimizers of the model, because there is one loss: a call with
    /// any of them sets it for all, and with a dynamic one a gradient that is not finite, of whichever optimizer, leaves out the
    /// steps of all. It is saved with the optimizers. All ranks must set the same.
    /// @param options NULL: dynamic, with the defaults
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (as ddp_optimizer_set_rate). Since 0.1.
    pub fn ddp_optimizer_set_loss_scale(optimizer: *mut ddp_optimizer, options: *const ddp_loss_scale_options) -> ddp_status;

    /// What to multiply the next loss with; 1 without a loss scale. Local. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_optimizer_get_loss_scale(optimizer: *const ddp_optimizer, out_scale: *mut f64) -> ddp_status;

    /// Steps left out because of gradients that were not finite. Local. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_optimizer_get_skipped_count(optimizer: *const ddp_optimizer, out_count: *mut i64) -> ddp_status;

    /// 2-norm of the gradients at the last step, before clipping and without the loss scale; -1 unless max_norm, nonfinite or a
    /// dynamic loss scale made the step look at it. Waits for the step's stream if the norm was taken on a GPU. Local. Errors:
    /// INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_optimizer_get_grad_norm(optimizer: *const ddp_optimizer, out_norm: *mut f64) -> ddp_status;

    /// Give one parameter of the optimizer its own weight decay and a factor on the learning rate (biases and norms without
    /// decay, layer-wise rates). Default: the optimizer's decay, and 1. All ranks must set the same.
    /// @param weight_decay 0 or more
    /// @param rate_scale 0 or more; 0 freezes the parameter: it keeps its value, and also its moments and step count, as if no
    ///        rank had used it
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (as ddp_optimizer_set_rate). Since 0.1.
    pub fn ddp_optimizer_set_parameter_options(optimizer: *mut ddp_optimizer, index: i32, weight_decay: f64, rate_scale: f64) -> ddp_status;

    /// Update every parameter of the optimizer that was used in the last REDUCE pass. Parameters that no rank used keep their
    /// value and their optimizer state. The gradients of a pass are good for one step of each optimizer. Gradients for a step of
    /// this rank alone come from a DDP_PASS_LOCAL pass; gradients that the program has reduced itself are announced by
    /// ddp_model_mark_reduced. In a group of one the first step needs no pass. (Launches of a pass that was captured into a CUDA
    /// graph are not visible to libddp, so from then on every step is made.) Parameters on a GPU change in the order of `stream`.
    /// The first step allocates and may wait for the GPU; later ones wait for the stream only where the host has to decide: with
    /// nonfinite FAIL; and with max_norm, nonfinite SKIP or a dynamic loss scale if some parameters are in host memory or the
    /// rule is the program's (max_norm alone: also with `shard`). Otherwise the GPU decides and counts.
    ///
    /// A step may be captured into a CUDA graph, together with its pass or alone, if all parameters are on the GPU, the rule is
    /// SGD or Adam, in_backward is 0 and nonfinite is not FAIL (or the loss scale is dynamic, and the model has no other
    /// optimizer). Make one step with the same
    /// options before. Each launch makes a step with the learning rate, groups and counts that are current then.
    /// include/GPU.md, "CUDA graphs", lists when a graph may be launched.
    /// @param stream that of ddp_model_end_backward, or one that is ordered after it
    /// Local; collective with the option shard, and with a dynamic loss scale if another optimizer of the model has that option.
    /// Errors: INVALID_STATE (not committed, a pass is open, the stream is captured and
    /// the step is not one of these;
    /// with several ranks, gradients that no pass has made; gradients that this optimizer has stepped with already, that were
    /// accumulated and not reduced, or that a failed pass left; gradients of which each rank has its slice, because of an
    /// optimizer with shard that had the parameter in the last pass; with a dynamic loss scale, another optimizer of the model
    /// that has left out a step; averages in the place of the parameters (ddp_ema_swap); a failed pass or load that changed a
    /// part of the parameters; or gradients that are not finite with DDP_NONFINITE_FAIL), CALLBACK, OUT_OF_MEMORY (first step),
    /// and the first cause if the group is broken. Since 0.1.
    pub fn ddp_optimizer_step(optimizer: *mut ddp_optimizer, stream: *mut c_void) -> ddp_status;

    /// Start averages of all parameters of a model, one for each decay, from their values at the first update (or load).
    /// average = decay * average + (1 - decay) * value, in F32 (F64 for F64 parameters).
    /// @param decays `count` different numbers from 0 to below 1
    /// @param count 1 to 16
    /// @param out_ema destroy with ddp_ema_destroy
    /// Local. May come before or after ddp_model_commit. Errors: INVALID_ARGUMENT, MISMATCH (on a rank that has joined others:
    /// not what they have), OUT_OF_MEMORY. Since 0.1.
    pub fn ddp_ema_create(model: *mut ddp_model, decays: *const f64, count: i32, out_ema: *mut *mut ddp_ema) -> ddp_status;

    /// Release the averages. The parameters keep what they hold at the moment. Local. NULL is ignored. Since 0.1.
    pub fn ddp_ema_destroy(ema: *mut ddp_ema);

    /// Take the current parameters into every average, in one pass over memory. Call after each step.
    /// @param stream of parameters on a GPU: that of ddp_optimizer_step; their averages are on the GPU too, and the host waits in
    ///        the first update only (it allocates)
    /// Local. Errors: INVALID_STATE (not committed, swapped, or the stream is being captured into a CUDA graph), OUT_OF_MEMORY
    /// (first update).
    /// Since 0.1.
    pub fn ddp_ema_update(ema: *mut ddp_ema, stream: *mut c_void) -> ddp_status;

    /// Exchange the parameters with one of the averages, for evaluation; call again with the same `which` to swap back.
    /// @param which position of the decay given to ddp_ema_create
    /// @param stream of parameters on a GPU: they are exchanged in its order; F16 and BF16 ones make the host wait, because their
    ///        bits are kept in memory that is allocated and freed
    /// While an average is swapped in, what would change the parameters is refused (INVALID_STATE): ddp_optimizer_step, passes
    /// with in_backward, loads, ddp_model_average_parameters, ddp_model_join and other averages. Passes and saving the model
    /// alone are allowed.
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (no update yet, another average is swapped in, or the stream is captured),
    /// OUT_OF_MEMORY.
    /// Since 0.1.
    pub fn ddp_ema_swap(ema: *mut ddp_ema, which: i32, stream: *mut c_void) -> ddp_status;

    /// Write the defaults: all NULL or 0. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_state_init(state: *mut ddp_state, struct_size: i64) -> ddp_status;

    /// Write the defaults: all 0. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_load_options_init(options: *mut ddp_load_options, struct_size: i64) -> ddp_status;

    /// Remember a text under a key with the model; it is saved and loaded with it (best accuracy, tokenizer, configuration).
    /// @param key 1 to 256 bytes of UTF-8
    /// @param value UTF-8 without NUL; copied. NULL removes the key
    /// Local; rank 0's values are the ones saved. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_model_set_metadata(model: *mut ddp_model, key: *const c_char, value: *const c_char) -> ddp_status;

    /// Fetch a text.
    /// @param out_value owned by the model, valid until the key is set again or the model is destroyed; NULL if the key is
    /// missing Local. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_model_get_metadata(model: *const ddp_model, key: *const c_char, out_value: *mut *const c_char) -> ddp_status;

    /// Save a checkpoint. Rank 0 writes a temporary file in the folder of `path`, syncs it, renames it and syncs the folder;
    /// every rank returns after that, so the file may be read at once and no barrier is needed. On failure the former file is
    /// untouched, the temporary one is deleted, and every rank gets the same error. Between a pass that made the step
    /// (in_backward) and ddp_optimizer_step, the file holds that step as after it. Collective, blocks; not in an open pass.
    /// Errors: IO (disk full, permission, path, named), INVALID_STATE (also after a failed pass or load that changed a part of
    /// the parameters), and those of collectives. Since 0.1.
    pub fn ddp_state_save_file(state: *const ddp_state, path: *const c_char) -> ddp_status;

    /// Load a checkpoint: rank 0 reads, all ranks receive. Names, shapes and dtypes are verified before anything is touched.
    /// The model may be committed or not; the world size may differ from the one that saved.
    /// @param options NULL: all defaults
    /// @param out_report what was found; its struct_size is set by the caller; may be NULL
    /// With `partial` a tensor that the checkpoint lacks keeps what it holds (in an optimizer also its step count; an average
    /// begins at its parameter), and one that the model lacks is not read; a common name with another shape or dtype is a
    /// MISMATCH all the same.
    /// A step that a pass made (in_backward) and that ddp_optimizer_step has not ended is over.
    /// Master weights whose values are loaded without them begin at the values, and PowerSGD's memory begins anew. Gradients
    /// stay as they are.
    /// Collective, blocks; with `local` it is local; not in an open pass, nor while ddp_ema_swap has put averages into the
    /// parameters (INVALID_STATE). If a load fails after it has begun to write, its error reports it, and the model's calls
    /// return INVALID_STATE until a load succeeds. Errors: IO (missing, truncated or not a checkpoint: what and where), MISMATCH
    /// (missing, unexpected or different tensors, by name), INVALID_STATE, and those of collectives; the same on every rank.
    /// Since 0.1.
    pub fn ddp_state_load_file(state: *const ddp_state, path: *const c_char, options: *const ddp_load_options, out_report: *mut ddp_load_report) -> ddp_status;

    /// Name of a tensor that the model, optimizer or averages have and the checkpoint of the last load had not.
    /// @param index from 0 to below `missing` of the ddp_load_report; in the order of the checkpoint
    /// Local. The text is the model's own, valid until the next load or ddp_model_destroy. NULL beyond the last name, and if
    /// `model` is not a model. Since 0.1.
    pub fn ddp_model_get_missing(model: *const ddp_model, index: i64) -> *const c_char;

    /// Name of a tensor that the checkpoint of the last load had and the model has not. As ddp_model_get_missing, up to
    /// `unexpected`. Local. Since 0.1.
    pub fn ddp_model_get_unexpected(model: *const ddp_model, index: i64) -> *const c_char;

    /// As ddp_state_save_file, through a callback on rank 0 (object store, archive). The other ranks may pass NULL.
    /// Since 0.1.
    pub fn ddp_state_save(state: *const ddp_state, fn_: ddp_write_fn, user_data: *mut c_void) -> ddp_status;

    /// As ddp_state_load_file, through a callback on rank 0. The other ranks may pass NULL. Since 0.1.
    pub fn ddp_state_load(state: *const ddp_state, fn_: ddp_read_fn, user_data: *mut c_void, options: *const ddp_load_options, out_report: *mut ddp_load_report) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_sampler_init(sampler: *mut ddp_sampler, struct_size: i64) -> ddp_status;

    /// How many indices each rank gets per epoch. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_sampler_get_count(sampler: *const ddp_sampler, out_count: *mut i64) -> ddp_status;

    /// Write indices `first` to `first + count` of this rank's share of an epoch. Resuming in the middle of an epoch is passing
    /// `first`.
    /// The sequence is frozen: the same fields give the same indices in every version.
    /// @param epoch 0 or more; pass it, or every epoch has the same order
    /// @param first position in this rank's share
    /// @param count how many; first + count must not exceed ddp_sampler_get_count
    /// @param out_indices `count` numbers from 0 to dataset_size - 1
    /// Local, any thread, no allocation, constant time per index. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_sampler_fill(sampler: *const ddp_sampler, epoch: i64, first: i64, count: i64, out_indices: *mut i64) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_custom_options_init(options: *mut ddp_custom_options, struct_size: i64) -> ddp_status;

    /// As ddp_optimizer_create_sgd, with a rule of the program. Everything in `options` works as for a built-in rule, and so do
    /// loss scale, groups and checkpoints. On a GPU max_norm, clip_value, master_weights and a loss scale are refused
    /// (NOT_SUPPORTED, when a step or pass begins).
    /// @param rule NULL: all defaults; copied
    /// @param options NULL: all defaults; copied. `undo` also holds for steps outside passes, which then keep values and state
    ///        once more
    /// @param state_names of the arrays that libddp keeps for each parameter, separated by commas, such as "exp_avg,exp_avg_sq";
    ///        letters, digits and underlines, at most DDP_MAX_STATES names. They are zero at first, sharded with the parameters,
    ///        and saved as "<parameter>.<name>".
    ///        NULL: none
    /// @param fn the rule
    /// @param user_data handed to fn
    /// @param release called once when the optimizer is destroyed (also if this call fails); NULL: nothing
    /// Local. Errors: as ddp_optimizer_create_sgd. Since 0.1.
    pub fn ddp_optimizer_create_custom(model: *mut ddp_model, rule: *const ddp_custom_options, options: *const ddp_optimizer_options, state_names: *const c_char, fn_: ddp_update_fn, user_data: *mut c_void, release: ddp_release_fn, out_optimizer: *mut *mut ddp_optimizer) -> ddp_status;

    /// Give the model a hook, before ddp_model_commit; all ranks give the same kind. NULL: the plain reduction, which is the
    /// default.
    /// @param fn ddp_hook_powersgd or your own
    /// @param release called once when the hook is not used any more (also if this call fails); NULL: nothing
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (committed, or the model has the option `wire`, which is for the plain
    /// reduction). Since 0.1.
    pub fn ddp_model_set_hook(model: *mut ddp_model, fn_: ddp_hook_fn, user_data: *mut c_void, release: ddp_release_fn) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_powersgd_options_init(options: *mut ddp_powersgd_options, struct_size: i64) -> ddp_status;

    /// Built-in hook: PowerSGD (Vogels, Karimireddy, Jaggi, 2019). Instead of an n x m gradient (n is its first dimension, m the
    /// product of the others) `rank` vectors of n and of m elements are sent; F32 and F64 gradients that gain too little by that,
    /// or have one dimension, are sent unchanged. The result has the same bits on all ranks; it approximates the mean, exactly
    /// for matrices of that rank. The error of a rank's gradient is kept and added to its next one. This memory, twice as large
    /// as the gradients, and the vectors belong to the model; a pass that fails leaves them as they were. They are not part of
    /// checkpoints and begin empty after a restart or a load. A gradient that is not finite on some rank becomes NaN on all.
    /// @param user_data given to ddp_model_set_hook: const ddp_powersgd_options *, copied; NULL: the defaults. The same where a
    ///        hook of your own calls it (collective); the first call's options stay.
    /// Local as a name. Errors (called on a bucket): INVALID_ARGUMENT, OUT_OF_MEMORY, and as ddp_group_all_reduce. Since 0.1.
    pub fn ddp_hook_powersgd(user_data: *mut c_void, bucket: *mut ddp_bucket) -> i32;

    /// The program itself reduces the buckets, on its own thread: for languages that cannot be called from a foreign thread.
    /// Before ddp_model_commit. Then, in every REDUCE pass, between the marks and after them:
    ///   while (ddp_model_next_bucket(model, 1, &bucket) == DDP_OK && bucket != NULL) { ...; ddp_model_finish_bucket(model, 0,
    ///   NULL); }
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (committed). Since 0.1.
    pub fn ddp_model_set_pulled_hook(model: *mut ddp_model) -> ddp_status;

    /// The next bucket of the open pass. Buckets come in the same order on all ranks.
    /// @param rest 0: only if all its gradients are marked on this rank; 1: nothing more will be marked on this rank
    /// @param out_bucket usable until ddp_model_finish_bucket; NULL: none now (rest 0), or none any more (rest 1, or the pass has
    ///        failed)
    /// Collective when it gives a bucket: waits until every rank has come to it. Do not call it while other threads mark
    /// gradients with rest 1. Errors: INVALID_ARGUMENT, INVALID_STATE (no open pass, the last bucket was not finished, not a
    /// pulled hook), and those of collectives. Since 0.1.
    pub fn ddp_model_next_bucket(model: *mut ddp_model, rest: i32, out_bucket: *mut *mut ddp_bucket) -> ddp_status;

    /// Finish the bucket that ddp_model_next_bucket returned: its contents become the gradients if every rank passes 0.
    /// @param status 0, or any other number if it failed here
    /// @param text what went wrong, for all ranks; NULL: the text of ddp_bucket_set_error
    /// Collective. Errors: CALLBACK (it failed on some rank; the pass is void, end it), MISMATCH (the ranks made different
    /// calls), INVALID_STATE (no bucket was given), and those of collectives. Since 0.1.
    pub fn ddp_model_finish_bucket(model: *mut ddp_model, status: i32, text: *const c_char) -> ddp_status;

    /// Number of the bucket in plan order, from 0; -1 if `bucket` is not in a hook now. Local. Since 0.1.
    pub fn ddp_bucket_get_index(bucket: *const ddp_bucket) -> i32;

    /// Is it the last bucket of the pass? 1 yes, 0 no; -1 if `bucket` is not in a hook now. Local. Since 0.1.
    pub fn ddp_bucket_is_last(bucket: *const ddp_bucket) -> i32;

    /// The bucket's gradients as one flat array, in memory that the group's collectives reach without a copy. Gradients start on
    /// 64-byte boundaries, with zeros between them; after ddp_model_set_buckets they follow each other with no gap.
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not in a hook now). Since 0.1.
    pub fn ddp_bucket_get_contents(bucket: *const ddp_bucket, out_contents: *mut ddp_tensor) -> ddp_status;

    /// How many parameters have their gradient in the bucket; -1 if `bucket` is not in a hook now. Local. Since 0.1.
    pub fn ddp_bucket_get_parameter_count(bucket: *const ddp_bucket) -> i32;

    /// One gradient of the bucket.
    /// @param position 0 to the number of parameters in the bucket
    /// @param out_index the parameter's index in the model; may be NULL
    /// @param out_grad its part of the contents, with the shape of the parameter; may be NULL
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not in a hook now). Since 0.1.
    pub fn ddp_bucket_get_parameter(bucket: *const ddp_bucket, position: i32, out_index: *mut i32, out_grad: *mut ddp_tensor) -> ddp_status;

    /// Did any rank contribute to the gradient at `position` of the bucket? 1 yes; 0 no: the hook's result is dropped; -1
    /// if the arguments are wrong. Local. Since 0.1.
    pub fn ddp_bucket_is_used(bucket: *const ddp_bucket, position: i32) -> i32;

    /// The model's group as a hook may use it. Usable until the hook returns; the library's, not to be destroyed. It takes
    /// ddp_group_all_reduce, ddp_group_all_gather, ddp_group_reduce_scatter and ddp_group_broadcast, on the contents or on host
    /// memory of your own (`stream` is not looked at), and ddp_group_get_rank and ddp_group_get_size. Other functions refuse it
    /// with INVALID_ARGUMENT. Its collectives also answer CALLBACK or MISMATCH: the hook failed on another rank, or did something
    /// else there. Return at once then.
    /// @param bucket in a hook now
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not in a hook now). Since 0.1.
    pub fn ddp_bucket_get_group(bucket: *mut ddp_bucket, out_group: *mut *mut ddp_group) -> ddp_status;

    /// Set the error text of a bucket, before the hook returns a number other than 0: every rank gets the text.
    /// @param text copied; at most 479 bytes are sent
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not in a hook now). Since 0.1.
    pub fn ddp_bucket_set_error(bucket: *mut ddp_bucket, text: *const c_char) -> ddp_status;

    /// This rank is out of data: answer the other ranks' passes without contributing, until every rank has joined. Then all ranks
    /// hold the parameters, buffers, optimizers and averages of the lowest rank among those that trained to the end, and continue
    /// together. Meanwhile the other ranks may open passes of this model, call ddp_model_sync_buffers, and make local calls
    /// (optimizer, averages). Their other collectives on the group are refused with INVALID_STATE; one that is made before they
    /// learn of the joined rank, from a pass or ddp_model_sync_buffers, breaks the group with DIFFERENT_CALLS. Collectives on
    /// other groups are not answered: call ddp_group_abort on those first. The model needs the option uneven_inputs, which
    /// excludes optimizers with shard and pulled hooks. Optimizers and averages must have been made in the same order on every
    /// rank. Collective, blocks; not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE (without uneven_inputs, or a pass
    /// is open), MISMATCH (other ranks have other optimizers or averages), and those of collectives. Since 0.1.
    pub fn ddp_model_join(model: *mut ddp_model, stream: *mut c_void) -> ddp_status;

    /// Write the defaults.
    /// @param options filled; not NULL
    /// @param struct_size sizeof(ddp_recover_options) as the caller sees it
    /// Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_recover_options_init(options: *mut ddp_recover_options, struct_size: i64) -> ddp_status;

    /// Ranks that broke the group: the one that the first cause names, and those that were silent when it broke. Ranks are
    /// numbered as in the broken group.
    /// @param ranks filled with at most `capacity` ranks, ascending; NULL if capacity is 0
    /// @param out_count how many there are, whatever the capacity; 0: the group is whole, or was ended on purpose
    /// Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_group_get_failed(group: *const ddp_group, ranks: *mut i32, capacity: i32, out_count: *mut i32) -> ddp_status;

    /// The last known progress of a rank: ranks send it every heartbeat_ms. With ranks that are threads, and in a group of one,
    /// it is current. In groups of more than 64 ranks it is up to date for the ranks that are furthest behind.
    /// @param rank 0 to size - 1
    /// @param out_progress filled; struct_size set by the caller
    /// Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_group_get_progress(group: *const ddp_group, rank: i32, out_progress: *mut ddp_rank_progress) -> ddp_status;

    /// Continue with the surviving ranks. The group, its models, optimizers, averages and memory keep their handles and
    /// addresses; an open pass ends, and its gradients are undefined. All ranks then hold the parameters, buffers and optimizer
    /// of the last step that every one of them has made, and repeat the next one. If ranks were lost, part of the state of an
    /// optimizer with shard = 1 is lost, unless it has no master weights and has made no step: all ranks go back to what
    /// ddp_state_keep (ddp/keep.h) has kept; without that, load a checkpoint with the optimizer (until then INVALID_STATE).
    /// @param options NULL: all defaults
    /// @param out_recovery filled if not NULL; struct_size set by the caller
    /// Collective over the ranks that are left, blocks: less than a second where deaths are seen (one host), and for ranks that
    /// only fell silent about a second after dead_after_ms. If another rank dies meanwhile it begins again by itself; if a new
    /// rank fails or does not fit (another model, other options), it begins again without new ranks. No other call may use the
    /// group or what was made from it meanwhile. Groups made by ddp_group_split recover by themselves. After an error the group
    /// is broken as before the call, and the call may be repeated, unless stated otherwise below. Errors: INVALID_STATE (the
    /// group is not broken, or was made without recoverable), INVALID_ARGUMENT, TOO_FEW_RANKS (on all present ranks; nothing has
    /// changed, and the call may be repeated), NO_MAJORITY (the same, but unreachable ranks may continue: end this process),
    /// FENCED (this rank was silent, and the other ranks have continued without it), MISMATCH (the replicas still differ after
    /// the state was sent; the group can be used, the model after a checkpoint was loaded), OUT_OF_MEMORY. Since 0.1.
    pub fn ddp_group_recover(group: *mut ddp_group, options: *const ddp_recover_options, out_recovery: *mut ddp_recovery) -> ddp_status;

    /// Ranks that were lost in the last recovery, by their numbers before it.
    /// @param ranks filled with at most `capacity` ranks, ascending; NULL if capacity is 0
    /// @param out_count how many there are, whatever the capacity; 0 also before the first recovery with this rank
    /// Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_group_get_gone(group: *const ddp_group, ranks: *mut i32, capacity: i32, out_count: *mut i32) -> ddp_status;

    /// Ranks that the last recovery took in, numbered as now. A rank that has joined is among them, until the next recovery.
    /// @param ranks filled with at most `capacity` ranks, ascending; NULL if capacity is 0
    /// @param out_count how many there are, whatever the capacity
    /// Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_group_get_joined(group: *const ddp_group, ranks: *mut i32, capacity: i32, out_count: *mut i32) -> ddp_status;

    /// New number of each rank after the last recovery: element r is the new number of old rank r, or -1 if it was lost.
    /// @param ranks filled with at most `capacity` ranks; NULL if capacity is 0
    /// @param out_count number of ranks before it, whatever the capacity; 0 before the first recovery with this rank
    /// Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_group_get_renumbered(group: *const ddp_group, ranks: *mut i32, capacity: i32, out_count: *mut i32) -> ddp_status;

    /// Which parts are this rank's. They change when ddp_group_recover has returned. Local, any thread. Errors: INVALID_ARGUMENT,
    /// INVALID_STATE (destroyed). Since 0.1.
    pub fn ddp_group_get_virtual_ranks(group: *const ddp_group, out_ranks: *mut ddp_virtual_ranks) -> ddp_status;

    /// A key for the random numbers (dropout, augmentation) of one part in one step, the same wherever the part runs. The
    /// sequence is frozen: the same arguments give the same key in every version.
    /// @param seed of the training
    /// @param step its number, 0 or more, which the program counts (and restores from a checkpoint)
    /// @param virtual_rank of the part, 0 or more
    /// @param out_key 64 bits, any pattern
    /// Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_virtual_rank_key(seed: i64, step: i64, virtual_rank: i32, out_key: *mut i64) -> ddp_status;

    /// As ddp_group_reduce_metrics, with one value for each part: summed in the tree over all parts, so the result has the same
    /// bits at any number of ranks. DDP_AVERAGE divides by the number of parts.
    /// @param part_values the numbers of this rank's parts, one part after the other: `count` doubles for each. The first `count`
    ///        are replaced by the result, the same bits on every rank; what the others hold afterwards is undefined
    /// @param count of each part, 1 to 1,024
    /// Collective, blocks. Errors: as ddp_group_all_reduce. Since 0.1.
    pub fn ddp_group_reduce_part_metrics(group: *mut ddp_group, part_values: *mut f64, count: i64, op: ddp_reduce) -> ddp_status;

    /// Keep the state of these models in the memory of the ranks. Each rank copies its own part of parameters, buffers,
    /// optimizers and averages, and its share of what every rank has whole. On one host over shared memory the other ranks have
    /// the copy mapped; else it also goes to a rank of the next host. ddp_group_recover goes back to this state where it would
    /// ask for a checkpoint otherwise: a rank that had a part of an optimizer's state (shard = 1) has died, or a step has ended
    /// on some ranks only. Nothing of it is lost when any one rank dies, also in a keep and in a recovery, nor when any one host
    /// dies if the group has ranks on several. Call it where the program would save: behind the step, the average and the
    /// schedule. All sharded models of the group must be among the states, or a recovery cannot go back.
    /// @param states of models of one group, the same on all ranks, in the same order. A model is kept with all its optimizers
    /// and averages, whatever else its state names. `epoch` and `step` are those of the first one, and equal on all ranks
    /// @param count of `states`; 1 or more
    /// @param stream as for a model
    /// Cost: a copy of the own part, and between hosts its transfer. Memory: twice the own part, and twice each part of another
    /// host that this rank keeps. The algorithm is that of Gemini (Wang et al., SOSP 2023). A later keep replaces what was kept,
    /// and a load ends it. Collective, blocks; not in an open pass, nor between parts of a batch, nor while ddp_ema_swap has put
    /// averages into the parameters, nor after DDP_PASS_LOCAL, which makes the ranks differ. Errors: INVALID_STATE (also if the
    /// group was made without recoverable = 1), INVALID_ARGUMENT, MISMATCH (the ranks keep different steps or tensors),
    /// OUT_OF_MEMORY, and those of collectives. Since 0.1.
    pub fn ddp_state_keep(states: *const ddp_state, count: i32, stream: *mut c_void) -> ddp_status;

    /// The program's own bytes of the state to which a recovery of the group went back last (`own` of ddp_state). All ranks have
    /// them, also a rank that has joined in that recovery.
    /// @param data filled with at most `capacity` bytes; NULL if capacity is 0
    /// @param capacity bytes of `data`
    /// @param out_bytes how many there are, whatever the capacity; 0 before the first time
    /// Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_group_get_kept(group: *const ddp_group, data: *mut c_void, capacity: i64, out_bytes: *mut i64) -> ddp_status;

    /// Save a checkpoint into a folder, as the file step-000000001200.safetensors, with the state's `step`. Then remove old ones:
    /// of the files with this step or a smaller one the newest `keep` stay. The file of this call always stays, and no other file
    /// of the folder is touched but what saves that were killed have left.
    /// @param folder is there already; rank 0's counts, the others may pass NULL
    /// @param keep 1 or more; 0: remove nothing. Rank 0's counts
    /// One job saves to a folder: rank 0 holds a lock on it (the file .ddp-folder.lock) until its model is destroyed or its
    /// process ends, and the first save of another job fails with IO and names it. File systems without locks have no such guard.
    /// Files of a greater step are left alone, with a warning, because a load of the latest would prefer them.
    /// As ddp_state_save_file in all else. Errors: INVALID_ARGUMENT (step or keep below 0), IO, INVALID_STATE, and those of
    /// collectives. Since 0.1.
    pub fn ddp_state_save_latest(state: *const ddp_state, folder: *const c_char, keep: i64) -> ddp_status;

    /// Load the newest valid checkpoint of a folder that ddp_state_save_latest has filled. Rank 0 looks at the files from the
    /// greatest step down, verifies each as a whole, and skips what is damaged or cannot be read, with a warning to the log; all
    /// ranks get the same file. `step` of the report is its step, ddp_model_get_loaded_file returns its name. A job may load from
    /// a folder while another job saves to it.
    /// @param folder rank 0's counts, the others may pass NULL; with `local` this rank's
    /// A valid file of another model is not skipped: MISMATCH.
    /// As ddp_state_load_file in all else. Errors: NO_CHECKPOINT (the folder has no such file: begin anew), IO (there is no such
    /// folder; or it has files and none is valid, the newest is described), MISMATCH, INVALID_STATE, and those of collectives;
    /// the same on every rank. Since 0.1.
    pub fn ddp_state_load_latest(state: *const ddp_state, folder: *const c_char, options: *const ddp_load_options, out_report: *mut ddp_load_report) -> ddp_status;

    /// The file of the last load on rank 0: its path, or "" after a stream. It is the same on all ranks.
    /// Local. The text is the model's own, valid until the next load or ddp_model_destroy. NULL before the first load, and if
    /// `model` is not a model. Since 0.1.
    pub fn ddp_model_get_loaded_file(model: *const ddp_model) -> *const c_char;

    /// A file that the last ddp_state_load_latest skipped, and why, as one sentence.
    /// @param index from 0 (the newest) to below `skipped` of the ddp_load_report
    /// Local. As ddp_model_get_missing. Since 0.1.
    pub fn ddp_model_get_skipped(model: *const ddp_model, index: i64) -> *const c_char;

    /// Save what this rank has, without the others: the bytes are those of ddp_state_save, and may be loaded like them. For
    /// programs in which one rank alone saves; also when the group is broken.
    /// @param fn takes the bytes, on the calling thread
    /// @param user_data handed to fn
    /// Local; not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE (as ddp_state_save_file; and where the optimizer's
    /// state is sharded over several ranks: then all save together), CALLBACK (fn did not return 0), OUT_OF_MEMORY. Since 0.1.
    pub fn ddp_state_save_local(state: *const ddp_state, fn_: ddp_write_fn, user_data: *mut c_void) -> ddp_status;

    /// Wait until a parameter has its value of the last step. Returns at once if it has, also of an optimizer without the option
    /// late_values, and before ddp_model_commit.
    /// @param index of the parameter
    /// @param stream of a parameter on a GPU. There a step orders its values before what follows on its stream, as without the
    ///        option, and this call does nothing
    /// Local, blocks; one thread at a time for each model. Errors: INVALID_ARGUMENT, INVALID_STATE (in a function that the
    /// library has called), and the first cause if the group has broken: the parameters are then changed in part. Since 0.1.
    pub fn ddp_model_wait_value(model: *mut ddp_model, index: i32, stream: *mut c_void) -> ddp_status;

    /// Wait until all parameters have their values of the last steps. As ddp_model_wait_value. Since 0.1.
    pub fn ddp_model_wait_values(model: *mut ddp_model) -> ddp_status;

    /// Has a parameter its value of the last step?
    /// @param index of the parameter
    /// @return 1: it has; 0: a wait would block; -1: not a model, not a parameter, or the value will not come, and
    ///         ddp_last_error says why
    /// Local, never blocks; one thread at a time for each model. Since 0.1.
    pub fn ddp_model_value_ready(model: *const ddp_model, index: i32) -> i32;

    /// Post ddp_group_barrier.
    /// @param out_request destroy with ddp_request_destroy
    /// Never blocks, except that the first one of a group opens the channel of requests: that is collective, and INVALID_STATE
    /// while a pass is open. One thread at a time posts collectives. Errors, of this and of all collectives below:
    /// INVALID_ARGUMENT, as the blocking call; INVALID_STATE (destroyed, or called in a function that the library has called);
    /// the first cause in a broken group; OUT_OF_MEMORY, which breaks the group. What else may go wrong is the error of the
    /// request: that of the blocking call. Since 0.1.
    pub fn ddp_group_post_barrier(group: *mut ddp_group, out_request: *mut *mut ddp_request) -> ddp_status;

    /// Post ddp_group_all_reduce, with the same bits.
    /// @param tensor this rank's contribution, replaced by the result
    /// @param op as in ddp_group_all_reduce
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream of a tensor on a GPU. There the call itself waits for the other ranks' calls, as ddp_group_all_reduce does,
    ///        and the request has ended when it returns; INVALID_STATE while a pass is open
    /// As ddp_group_post_barrier. Since 0.1.
    pub fn ddp_group_post_all_reduce(group: *mut ddp_group, tensor: *const ddp_tensor, op: ddp_reduce, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_all_gather.
    /// @param input n elements
    /// @param output size * n elements; may contain `input` at its own place
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream as in ddp_group_post_all_reduce
    /// As ddp_group_post_barrier. Since 0.1.
    pub fn ddp_group_post_all_gather(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_reduce_scatter.
    /// @param input size * n elements
    /// @param output n elements; may be the own part of `input`
    /// @param op as in ddp_group_reduce_scatter
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream as in ddp_group_post_all_reduce
    /// As ddp_group_post_barrier. Since 0.1.
    pub fn ddp_group_post_reduce_scatter(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, op: ddp_reduce, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_broadcast.
    /// @param tensor of `root`, not changed until the request has ended; filled on the other ranks
    /// @param root equal on all ranks
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream as in ddp_group_post_all_reduce
    /// As ddp_group_post_barrier. Since 0.1.
    pub fn ddp_group_post_broadcast(group: *mut ddp_group, tensor: *const ddp_tensor, root: i32, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_reduce.
    /// @param tensor this rank's contribution; the result on `root`, undefined on the others
    /// @param op as in ddp_group_reduce
    /// @param root equal on all ranks
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream as in ddp_group_post_all_reduce
    /// As ddp_group_post_barrier. Since 0.1.
    pub fn ddp_group_post_reduce(group: *mut ddp_group, tensor: *const ddp_tensor, op: ddp_reduce, root: i32, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_gather.
    /// @param input n elements
    /// @param output size * n elements on `root`; on the other ranks NULL is allowed
    /// @param root equal on all ranks
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream of tensors on a GPU, see above
    /// As ddp_group_post_barrier. Since 0.1.
    pub fn ddp_group_post_gather(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, root: i32, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_scatter.
    /// @param input size * n elements on `root`; on the other ranks NULL is allowed
    /// @param output n elements
    /// @param root equal on all ranks
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream of tensors on a GPU, see above
    /// As ddp_group_post_barrier. Since 0.1.
    pub fn ddp_group_post_scatter(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, root: i32, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_all_to_all.
    /// @param input what this rank gives
    /// @param output what it gets; does not overlap `input`
    /// @param input_counts copied; NULL: as many for each
    /// @param output_counts copied; NULL: as many of each
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream of tensors on a GPU, see above
    /// As ddp_group_post_barrier. Since 0.1.
    pub fn ddp_group_post_all_to_all(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, input_counts: *const i64, output_counts: *const i64, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_all_gather_counts.
    /// @param input counts[rank] elements
    /// @param output the inputs of all ranks; may contain `input` at its own place
    /// @param counts copied; equal on all ranks
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream of tensors on a GPU, see above
    /// As ddp_group_post_barrier. Since 0.1.
    pub fn ddp_group_post_all_gather_counts(group: *mut ddp_group, input: *const ddp_tensor, output: *const ddp_tensor, counts: *const i64, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_send. A message of up to 64 KiB has ended at once where ddp_group_send would return at once.
    /// @param tensor not changed until the request has ended
    /// @param peer rank of the receiver
    /// @param tag 0 or more
    /// @param out_request destroy with ddp_request_destroy
    /// @param stream of a tensor on a GPU. The message is sent when the stream has come so far; later ones with its tag to this
    /// peer wait for that, other messages do not Local, never blocks; any thread, during other calls on the group and in an open
    /// pass. Errors: as ddp_group_post_barrier; those of the request are those of ddp_group_send. Since 0.1.
    pub fn ddp_group_post_send(group: *mut ddp_group, tensor: *const ddp_tensor, peer: i32, tag: i64, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Post ddp_group_receive. Receives with the same source and tag get messages in the order in which they are posted.
    /// @param tensor filled
    /// @param source rank of the sender, or DDP_ANY_SOURCE; ddp_request_get_source tells then which it was
    /// @param tag 0 or more
    /// @param out_request destroy with ddp_request_destroy; that withdraws a receive for which nothing has come
    /// @param stream of tensors on a GPU, see above
    /// As ddp_group_post_send. The time limit of the group counts from the first wait for the request on. Since 0.1.
    pub fn ddp_group_post_receive(group: *mut ddp_group, tensor: *const ddp_tensor, source: i32, tag: i64, out_request: *mut *mut ddp_request, stream: *mut c_void) -> ddp_status;

    /// Has the request ended?
    /// @param out_done 1: it has ended well; 0: it has not ended
    /// Local, never blocks, any thread, one at a time for each request. Errors: the error that the request has ended with, in
    /// every call; INVALID_ARGUMENT; INVALID_STATE (in a fork of the process that posted). Since 0.1.
    pub fn ddp_request_test(request: *mut ddp_request, out_done: *mut i32) -> ddp_status;

    /// Wait until the request has ended.
    /// @param timeout_ms at most so long; -1: only the group's own limit holds. The request stays open when the
    ///        time is over. That of a message ends before a group's limit of the same length, which would break the group
    /// @param out_done 1: it has ended well; 0: the time is over. NULL is allowed
    /// Local, blocks. Threads and errors as ddp_request_test; INVALID_STATE (in a function that the library has called). Ranks
    /// that wait for each other, in requests of collectives and in other calls, get DIFFERENT_CALLS; so while a thread waits
    /// without a limit, no other thread of this rank makes a collective call on the group. Since 0.1.
    pub fn ddp_request_wait(request: *mut ddp_request, timeout_ms: i64, out_done: *mut i32) -> ddp_status;

    /// Wait until one of several requests has ended, of one group or of several.
    /// @param ids `count` numbers, from ddp_request_get_id
    /// @param count 1 or more
    /// @param timeout_ms at most so long; -1: without a limit. The group's timeout_ms does not count here: a message that does
    ///        not come is waited for as long as the other rank lives
    /// @param out_index the first in the list that has ended; -1: the time is over. If that request has failed, its error is this
    ///        call's
    /// Local, blocks. Threads and errors as ddp_request_test; INVALID_STATE (in a function that the library has called).
    /// Since 0.1.
    pub fn ddp_request_wait_any(ids: *const i64, count: i32, timeout_ms: i64, out_index: *mut i32) -> ddp_status;

    /// The number of a request, for ddp_request_wait_any; 0 if `request` is not a request. Local, any thread. Since 0.1.
    pub fn ddp_request_get_id(request: *const ddp_request) -> i64;

    /// The rank that sent what a receive got; -1 until the receive has ended, and for other requests. Local, any thread.
    /// Since 0.1.
    pub fn ddp_request_get_source(request: *const ddp_request) -> i32;

    /// Give up a request. On return its tensors are not used any more, except by copies that are on `stream` already: a receive
    /// for which nothing has come is withdrawn, and any other request that has not ended is waited for. Local, blocks as
    /// ddp_request_wait. NULL and an already destroyed request are ignored. In a fork of the process that posted the call does
    /// nothing. Since 0.1.
    pub fn ddp_request_destroy(request: *mut ddp_request);

    /// Every parameter becomes its mean over the ranks, with the same bits on all of them: local SGD makes some steps after
    /// DDP_PASS_LOCAL passes and then this. Until then the replicas differ: ddp_model_check_replicas reports it (MISMATCH), and a
    /// checkpoint holds rank 0's parameters, so average before saving. Buffers and the state of optimizers stay each rank's own
    /// (ddp_model_sync_buffers copies buffers).
    /// Collective, blocks, not in an open pass. Errors: INVALID_STATE (also while ddp_ema_swap has put averages into the
    /// parameters), and those of collectives (parameters may then be averaged in part). Since 0.1.
    pub fn ddp_model_average_parameters(model: *mut ddp_model, stream: *mut c_void) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_outer_options_init(options: *mut ddp_outer_options, struct_size: i64) -> ddp_status;

    /// Make an outer optimizer of a model. Its passes are DDP_PASS_LOCAL, its optimizer is any (not with shard), stepped on each
    /// rank alone. Memory: 12 bytes a parameter (24 of F64), and 4 with error_feedback.
    /// @param model ready; its parameters are F32, F64, F16 or BF16 in host memory, equal on all ranks now
    /// @param options NULL: all defaults
    /// @param out_outer destroy with ddp_outer_destroy
    /// Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed, a pass is open, it has an outer optimizer), NOT_SUPPORTED
    /// (parameters on a GPU or complex), OUT_OF_MEMORY. Since 0.1.
    pub fn ddp_outer_create(model: *mut ddp_model, options: *const ddp_outer_options, out_outer: *mut *mut ddp_outer) -> ddp_status;

    /// Release it. Exchanges that are under way are dropped, and the parameters keep what they hold; on all ranks after the same
    /// number of steps. Local. NULL is ignored. Since 0.1.
    pub fn ddp_outer_destroy(outer: *mut ddp_outer);

    /// One step of the rank's own optimizer has been made: begin the exchanges that are due, and take what the others that have
    /// ended bring. Call after every step, on all ranks as often.
    /// The first call makes a group of the model's ranks for the exchanges (as ddp_group_split), so passes and collectives of the
    /// program can run at the same time. With d = global value at the last exchange - own value now, averaged over the ranks, and
    /// m = momentum * m + d: global -= rate * (d + momentum * m), with nesterov = 0 rate * m. Collective, blocks only when an
    /// exchange that must have ended has not, not in an open pass. Errors: those of collectives; INVALID_STATE (also after an
    /// exchange that failed: recover the group, or load a checkpoint). Since 0.1.
    pub fn ddp_outer_step(outer: *mut ddp_outer) -> ddp_status;

    /// Complete pending exchanges, exchange all fragments at once, and continue from the global values, whatever `keep` is:
    /// afterwards the replicas are equal. Call before evaluation and before a checkpoint, which holds rank 0's parameters.
    /// Rounding errors that were kept for the next exchange are sent with this one as they are, without rounding (32 bits).
    /// Collective, blocks, not in an open pass. Errors: as ddp_outer_step. Since 0.1.
    pub fn ddp_outer_sync(outer: *mut ddp_outer) -> ddp_status;

    /// What the exchanges have come to. Local. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_outer_get_stats(outer: *const ddp_outer, out_stats: *mut ddp_outer_stats) -> ddp_status;

    /// DDP_EXPERIMENTAL_VERSION of the loaded library. A program that uses an experimental part compares the two at its start:
    /// the parts are the same where the numbers are. Local, any thread, cannot fail. Since 0.1.
    pub fn ddp_experimental_version() -> i32;

    /// Say which gradients share a bucket, and the order of buckets. It takes the place of the library's plan: the options
    /// first_bucket_bytes and bucket_bytes mean nothing then. Buckets are reduced in this order, so it should be the order in
    /// which backward completes them. Bits do not depend on it. All ranks give the same buckets, which ddp_model_commit compares.
    /// In host memory the gradients of a bucket that libddp owns lie one behind the other in this order, with no gap, and the
    /// first one lies at the begin of a page; no other gradient has a part of the bucket's pages. On a GPU there may be gaps. The
    /// library splits a bucket of more than 4,096 parameters into several; these follow each other without a gap.
    /// @param model in the building state, with all its parameters; none can be added afterwards
    /// @param numbers the numbers of all parameters, each once, bucket after bucket; -1 between two buckets. Copied
    /// @param count how many numbers, with the -1
    /// The last call counts. Local. Errors: INVALID_ARGUMENT (NULL, a number that is no parameter, a parameter named twice or not
    /// at all, an empty bucket, parameters of several dtypes or devices in one bucket), INVALID_STATE (committed). Since 0.1.
    pub fn ddp_model_set_buckets(model: *mut ddp_model, numbers: *const i32, count: i32) -> ddp_status;

    /// Lead a committed model back to the building state: parameters and buffers are added and removed, optimizers are made for
    /// them, and ddp_model_commit takes it into use again. Values, gradients in memory and what was accumulated there, the state
    /// of optimizers and averages, step counts and weights of what stays are kept, without a file; parts of sharded state move to
    /// their new owners in ddp_model_commit. Parameters and buffers that stay keep their indices and the addresses of memory that
    /// libddp owns. An average begins at the value of a parameter that was added. An optimizer without a list of parameters gets
    /// those that are added; make the optimizers with lists if others are to have them.
    ///
    /// This ends: sums of parts of a batch (DDP_PASS_PART), marked ranges, hooks' memory, kept generations (ddp_state_keep), the
    /// plan of ddp_model_set_buckets, and the numbers of ddp_model_stats. A graph that was captured with the model must not be
    /// launched again. A step that the last pass has made is over; gradients that no step has taken must be computed again.
    ///
    /// While the model is building a recovery does not touch it: ranks that are left go on with ddp_model_commit, and a new rank
    /// commits the model with them. It registers what is there now, in the same order, without the gaps: its indices may differ.
    /// If a rank that is lost had parts of sharded state that a step has changed, ddp_model_commit succeeds, and a checkpoint
    /// must be loaded.
    /// @param stream what was enqueued on a GPU is waited for; it must not be captured
    /// Collective, blocks. Errors: INVALID_STATE (not committed, building already, a pass is open, averages are swapped in, an
    /// outer optimizer), OUT_OF_MEMORY (on all ranks; the model stays committed), and those of collectives. Since 0.1.
    pub fn ddp_model_reopen(model: *mut ddp_model, stream: *mut c_void) -> ddp_status;

    /// Take a parameter out of a model. libddp does not use its lent memory any more; memory of libddp's own for it is freed with
    /// the model and its optimizers. The index is not used again, and the name is free: a parameter that is added under it is
    /// another one, which begins anew.
    /// @param model in the building state, without a plan of ddp_model_set_buckets
    /// @param index the parameter
    /// Local; all ranks remove the same, else ddp_model_commit fails with MISMATCH. Errors: INVALID_ARGUMENT (no such parameter),
    /// INVALID_STATE (committed). Since 0.1.
    pub fn ddp_model_remove_parameter(model: *mut ddp_model, index: i32) -> ddp_status;

    /// The same for a buffer.
    /// @param index that ddp_model_add_buffer gave
    /// Local; all ranks remove the same. Errors: as ddp_model_remove_parameter. Since 0.1.
    pub fn ddp_model_remove_buffer(model: *mut ddp_model, index: i32) -> ddp_status;

    /// Reduce rows of a table, of which every rank has some: the gradient of an embedding, without the rows that no rank touched.
    /// All ranks get the union of the indices, in rising order, and for each the sum or mean over all ranks, a rank without the
    /// row counting as zero: the same bits that dense gradients would have given. ddp_group_get_rows() fetches the result.
    /// @param indices I64 [k], each 0 or more, in any order; k may differ from rank to rank and be 0. Rows of an index that is
    ///        given several times are added first, in the order given
    /// @param rows [k, ...], any dtype; row shape and dtype are the same on all ranks
    /// @param op AVERAGE (divides by the number of ranks) or SUM
    /// @param out_count rows of the result, the same on every rank
    /// Collective, blocks on CPU; two small messages and one of the size of the result. Errors: as ddp_group_all_reduce; MISMATCH
    /// (rows of another dtype or width on another rank: the group stays whole), OUT_OF_MEMORY (on every rank). Since 0.1.
    pub fn ddp_group_all_reduce_rows(group: *mut ddp_group, indices: *const ddp_tensor, rows: *const ddp_tensor, op: ddp_reduce, out_count: *mut i64, stream: *mut c_void) -> ddp_status;

    /// Copy the result of the last ddp_group_all_reduce_rows on this group.
    /// @param indices receives I64 [count]
    /// @param rows receives [count, ...], of the dtype and with rows of the size that were reduced
    /// Local. Errors: INVALID_ARGUMENT (they do not fit the result), INVALID_STATE (there is no result). Since 0.1.
    pub fn ddp_group_get_rows(group: *const ddp_group, indices: *const ddp_tensor, rows: *const ddp_tensor) -> ddp_status;

    /// Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_batch_norm_options_init(options: *mut ddp_batch_norm_options, struct_size: i64) -> ddp_status;

    /// y = (x - mean) * invstd * weight + bias for each channel, with the mean and variance of that channel over all ranks.
    /// With `training` the running statistics become (1 - momentum) * old + momentum * new, with the unbiased variance (divided
    /// by count - 1), the same bits on every rank that had the same before. That happens here, before the backward pass: if that
    /// fails and the batch is repeated, its statistics count twice, so a program that repeats batches keeps a copy of both.
    /// @param group whose ranks share the batch. Between begin_backward and end_backward of a model use a second group
    /// @param options NULL: all defaults
    /// @param x F32, F64, F16 or BF16, [N, C, ...]
    /// @param weight [C], any of these dtypes; NULL: 1
    /// @param bias [C], any of these dtypes; NULL: 0
    /// @param running_mean [C], any of these dtypes; NULL: not kept
    /// @param running_var [C], any of these dtypes; given if running_mean is; read when not training, otherwise both are updated
    /// @param y shape and dtype of x; may be x itself when no backward follows
    /// @param saved_mean F64 [C], for backward; NULL when none follows
    /// @param saved_invstd F64 [C], as saved_mean
    /// @param out_count values per channel over all ranks, for backward; may be NULL
    /// Collective with `training` (one message), otherwise local; blocks. No two of the tensors may overlap, except x and y.
    /// Errors: INVALID_ARGUMENT (shapes, dtypes; on every rank: a single value per channel in training, which has no variance),
    /// MISMATCH (another number of channels, or other options on another rank), and those of collectives; then nothing was
    /// written. Without any value on any rank nothing happens. Since 0.1.
    pub fn ddp_batch_norm_forward(group: *mut ddp_group, options: *const ddp_batch_norm_options, x: *const ddp_tensor, weight: *const ddp_tensor, bias: *const ddp_tensor, running_mean: *const ddp_tensor, running_var: *const ddp_tensor, y: *const ddp_tensor, saved_mean: *const ddp_tensor, saved_invstd: *const ddp_tensor, out_count: *mut i64, stream: *mut c_void) -> ddp_status;

    /// Gradients of ddp_batch_norm_forward: for x over the samples of all ranks; for weight and bias this rank's share, which is
    /// reduced with all other gradients. When not training the statistics are constants, and nothing is sent.
    /// @param dy gradient of y, [N, C, ...]
    /// @param x as in forward
    /// @param weight as in forward
    /// @param saved_mean as in forward
    /// @param saved_invstd as in forward
    /// @param count what forward gave as out_count
    /// @param dx shape and dtype of x; may be dy itself; NULL: not wanted
    /// @param dweight [C], F32, F64, F16 or BF16; NULL: not wanted
    /// @param dbias as dweight
    /// Collective with `training` (one message), otherwise local; blocks. Errors: as ddp_batch_norm_forward. Since 0.1.
    pub fn ddp_batch_norm_backward(group: *mut ddp_group, options: *const ddp_batch_norm_options, dy: *const ddp_tensor, x: *const ddp_tensor, weight: *const ddp_tensor, saved_mean: *const ddp_tensor, saved_invstd: *const ddp_tensor, count: i64, dx: *const ddp_tensor, dweight: *const ddp_tensor, dbias: *const ddp_tensor, stream: *mut c_void) -> ddp_status;

    /// Keep memory of the library readable and writable, with its contents, after its owner was destroyed: after the model, the
    /// group, ddp_group_free. For languages whose slices and arrays may outlive the object that they came from. The memory is
    /// given back when its owner and as many ddp_memory_release as there were ddp_memory_retain are done; nothing else of a
    /// destroyed group or model stays.
    /// @param data any address in a gradient that libddp owns, in memory of ddp_group_alloc, or in the contents of a bucket; all
    ///        of the block around it is kept, which for a gradient is its bucket
    /// Local, never blocks, any thread, also within callbacks. Errors: INVALID_ARGUMENT (not such memory, or on a GPU).
    /// Since 0.1.
    pub fn ddp_memory_retain(data: *const c_void) -> ddp_status;

    /// Undo one ddp_memory_retain. In a fork of the process the memory stays as it is.
    /// @param data any address in the same block; NULL is ignored
    /// Local, never blocks, any thread. Errors: INVALID_ARGUMENT (it is not retained). Since 0.1.
    pub fn ddp_memory_release(data: *const c_void) -> ddp_status;

    /// Share memory of the program with the other ranks of this host, where it is: its address and its contents stay, and from
    /// now on gradients and tensors in it are reduced in place, as in memory of ddp_group_alloc. Whole pages are copied into
    /// shared memory, which is mapped over them. The first and the last bytes, up to a page, stay private and are copied in each
    /// reduction. Ranks may share or not, each as it likes; a tensor is reduced in place if all ranks of the host share it, else
    /// through copies, with the same bits.
    ///
    /// The program promises: no thread, device or system call reads or writes the memory while this call runs (libddp cannot see
    /// O_DIRECT and asynchronous reads that are under way); and the memory is not freed, unmapped or moved before
    /// ddp_group_unshare. Freed memory would stay shared, and an allocator that counts on zeroed pages would hand out old
    /// contents.
    ///
    /// - A child of fork() gets a private copy, and its writes reach no other process. A page that the child has not written may
    ///   show later writes of the parent and of other ranks, or zeros after ddp_group_unshare. A child of clone() or _Fork()
    /// shares the memory.
    /// - When a call fails because the group has broken, the memory is private before the call returns, so a rank that was given
    ///   up never writes into it; ddp_group_status, which tells of it, is not such a call. ddp_group_recover shares it again, if
    ///   it can, and needs the same promise: nobody writes to the memory meanwhile, and no driver has it.
    /// - A call of another thread or rank that reduces the memory meanwhile fails, or has ended with the right result.
    /// - ddp_group_destroy makes it private.
    /// - Sub-groups of ddp_group_split do not share it.
    /// - It counts as shared memory (shmem), in limits of control groups too; twice while this call and ddp_group_unshare copy
    /// it.
    ///
    /// @param data begin of the memory, in bytes aligned as the program likes
    /// @param bytes 1 or more
    /// Local; takes as long as a copy, and a look at the process's mappings. Any thread, while no collective call of the group
    /// runs. Errors: NOT_SUPPORTED with the reason (the memory stays private, which is no harm: smaller than 1 MiB; a stack, a
    /// file, memory on hugetlbfs or of a device; locked, sealed, guarded, tagged, with a protection key, excluded from forks or
    /// core dumps, watched by userfaultfd, merged by the kernel; pages on several NUMA nodes; known to the NVIDIA driver; the
    /// heap of Go or any memory of a process with a virtual machine of Java; a process with pinned memory, as io_uring and RDMA
    /// have; a group whose ranks share no memory), INVALID_ARGUMENT (some of it is shared already), OUT_OF_MEMORY; each leaves
    /// all as it was. Since 0.1.
    pub fn ddp_group_share(group: *mut ddp_group, data: *mut c_void, bytes: i64) -> ddp_status;

    /// Make memory of ddp_group_share private again, with its contents and at its address. Other threads may write to it
    /// meanwhile; no write is lost. Destroy models with gradients or parameters in it before. Afterwards its pages are small
    /// ones, as after a copy.
    /// @param data as in ddp_group_share; NULL is ignored
    /// Local; takes as long as a copy. Any thread, while no collective call of the group runs. Errors: INVALID_ARGUMENT (not
    /// shared with this group), INVALID_STATE (a model reaches into it; or the program has freed or mapped anew some of it, which
    /// is left as it is), OUT_OF_MEMORY (it stays shared). Since 0.1.
    pub fn ddp_group_unshare(group: *mut ddp_group, data: *mut c_void) -> ddp_status;

    /// Write what to multiply the next loss with into a tensor, for kernels that read it there. Into memory of a GPU it is
    /// written in the order of `stream`, and the host does not wait: in a step that is captured into a CUDA graph each launch
    /// writes the scale of its time.
    /// @param tensor one element, F32 or F64; on the model's GPU, or in host memory (then it is written when the call returns, as
    /// by ddp_optimizer_get_loss_scale)
    /// @param stream of a tensor on a GPU: that of ddp_optimizer_step, or one that is ordered after it
    /// The host waits for the stream before the first step, and if parameters are in host memory or the rule is the program's.
    /// Local. Errors: INVALID_ARGUMENT (another type or size, or on another GPU than the group's), INVALID_STATE (the host would
    /// have to wait for a stream that is captured). Since 0.1.
    pub fn ddp_optimizer_copy_loss_scale(optimizer: *mut ddp_optimizer, tensor: *const ddp_tensor, stream: *mut c_void) -> ddp_status;

    /// The cost of stragglers: how long this rank's program waited in collectives and at the end of passes because another
    /// rank had not come yet, or its data had not, since the group was made or recovered. It is counted for the rank that came
    /// last, whose message was awaited, or that those had to wait for on their host. Waiting that computation hides is not
    /// counted. The sum of each element over the ranks (ddp_group_reduce_metrics) tells who holds up the others. Tensors on GPUs:
    /// only waiting on the host is counted.
    /// @param seconds element r: for rank r; 0 for this rank. At most `capacity` elements are written; NULL if capacity is 0
    /// @param out_count number of ranks, whatever the capacity
    /// Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_group_get_waits(group: *const ddp_group, seconds: *mut f64, capacity: i32, out_count: *mut i32) -> ddp_status;

    /// Write the defaults.
    /// @param options filled; not NULL
    /// @param struct_size sizeof(ddp_trace_options) as the caller sees it
    /// Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
    pub fn ddp_trace_options_init(options: *mut ddp_trace_options, struct_size: i64) -> ddp_status;

    /// Begin a trace: calls, passes, marks, buckets (waiting, reducing), steps, saves, exchanges over the control plane and what
    /// GPUs do in their streams are recorded on all ranks from here on. Recording allocates nothing and does not wait. Sub-groups
    /// that are made while the group is traced are recorded too.
    /// @param path the file that ddp_group_stop_trace writes; rank 0's value counts, other ranks may pass NULL. While the trace
    /// is on, each host has a folder `path`.ranks, so the parent folder must exist on all hosts
    /// @param options NULL: all defaults
    /// While a launcher traces the job (DDP_TRACE) its trace continues, and this trace is a separate one. A rank that dies
    /// leaves its last events in the folder. If the group is destroyed, or breaks and is destroyed, without ddp_group_stop_trace,
    /// its ranks on each host write the events that the folder holds.
    /// Collective. Errors: INVALID_STATE (a trace is on already; a pass is open), INVALID_ARGUMENT, IO (the same on all ranks),
    /// and those of collectives. Since 0.1.
    pub fn ddp_group_start_trace(group: *mut ddp_group, path: *const c_char, options: *const ddp_trace_options) -> ddp_status;

    /// End the trace; rank 0 writes the file, which is there on return. The clocks of ranks on other hosts are aligned by bounds
    /// that hold for any network delay; the file has the bound of the error. A trace that cannot be written ends too. Collective.
    /// Errors: INVALID_STATE (no rank has a trace that this group began; a pass is open), IO (the same on all ranks), and those
    /// of collectives. Since 0.1.
    pub fn ddp_group_stop_trace(group: *mut ddp_group) -> ddp_status;

    /// Show a number of the program, such as a loss, to those who watch the job: ddprun has the last value of each rank in its
    /// progress line, in --report and in --metrics. Without such a launcher the call only checks its arguments. It may come in
    /// every step: no system call, no message to other ranks, and no allocation after the first call of the process.
    /// @param name 1 to 63 letters of ASCII, digits, and the characters . _ - / : ("loss", "train/accuracy"). A process has at
    ///        most 64 names, in all its groups; values that are logged later under a name replace the one before
    /// @param value any number, infinities and NaN too
    /// Where ranks are threads of one process (local://), rank 0's values count. A rank that is started again begins without
    /// values.
    /// Local, never blocks, any thread, also while ddp_group_recover runs or after the group has failed. Errors:
    /// INVALID_ARGUMENT (the group, the name, a 65th name), OUT_OF_MEMORY (in the first call). Since 0.1.
    pub fn ddp_group_log_metric(group: *mut ddp_group, name: *const c_char, value: f64) -> ddp_status;
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{size_of, MaybeUninit};

    macro_rules! check {
        ($name:ident, $size:expr, $($field:ident: $offset:expr),*) => {
            assert_eq!(size_of::<$name>(), $size, stringify!($name));
            let whole = MaybeUninit::<$name>::uninit();
            $(
                let place = unsafe { core::ptr::addr_of!((*whole.as_ptr()).$field) } as usize - whole.as_ptr() as usize;
                assert_eq!(place, $offset, concat!(stringify!($name), ".", stringify!($field)));
            )*
        };
    }

    #[test]
    fn structs_lie_as_in_c() {
        check!(ddp_tensor, 88, data: 0, dtype: 8, device: 12, device_index: 16, ndim: 20, shape: 24);
        check!(ddp_log_message, 32, struct_size: 0, level: 8, code: 12, group: 16, rank: 24, reserved: 28);
        check!(ddp_error_details, 48, struct_size: 0, status: 8, rank_count: 12, parameter_count: 16, call: 20, other_call: 24, reserved: 28, bytes_expected: 32, bytes_got: 40);
        check!(ddp_store, 32, struct_size: 0, set: 8, get: 16, user_data: 24);
        check!(ddp_group_options, 120, struct_size: 0, rank: 8, world_size: 12, backend: 16, device_index: 20, timeout_ms: 24, heartbeat_ms: 32, dead_after_ms: 40, rendezvous_timeout_ms: 48, store: 56, sum_order: 64, reproducible: 68, nccl_max_ctas: 72, recoverable: 76, nccl_comm: 80, first_port: 88, last_port: 92, join: 96, virtual_ranks: 100, connect_all: 104, links: 108, requests: 112, one_thread: 116);
        check!(ddp_model_options, 64, struct_size: 0, first_bucket_bytes: 8, bucket_bytes: 16, reduce: 24, unused: 28, progress: 32, drift: 36, check_every: 40, divisor: 48, uneven_inputs: 52, wire: 56, own_values: 60);
        check!(ddp_model_stats, 128, struct_size: 0, parameters: 8, elements: 16, buckets: 24, passes: 32, gradient_bytes: 40, backward_ns: 48, comm_ns: 56, exposed_ns: 64, total_backward_ns: 72, total_comm_ns: 80, total_exposed_ns: 88, checks: 96, repairs: 104, sent_bytes: 112, total_sent_bytes: 120);
        check!(ddp_pass_report, 32, struct_size: 0, contributors: 8, last: 12, weight: 16, absent_count: 24, reserved: 28);
        check!(ddp_optimizer_options, 72, struct_size: 0, shard: 8, in_backward: 12, undo: 16, master_weights: 20, nonfinite: 24, divide_in_step: 28, max_norm: 32, clip_value: 40, parameters: 48, parameter_count: 56, late_values: 64, reserved: 68);
        check!(ddp_sgd_options, 48, struct_size: 0, rate: 8, momentum: 16, dampening: 24, weight_decay: 32, nesterov: 40, reserved: 44);
        check!(ddp_adam_options, 56, struct_size: 0, rate: 8, beta1: 16, beta2: 24, epsilon: 32, weight_decay: 40, decoupled: 48, reserved: 52);
        check!(ddp_loss_scale_options, 56, struct_size: 0, initial: 8, growth: 16, backoff: 24, minimum: 32, maximum: 40, interval: 48);
        check!(ddp_state, 88, struct_size: 0, model: 8, optimizer: 16, ema: 24, epoch: 32, step: 40, outer: 48, own: 56, own_bytes: 64, optimizers: 72, optimizer_count: 80);
        check!(ddp_load_options, 16, struct_size: 0, partial: 8, local: 12);
        check!(ddp_load_report, 48, struct_size: 0, epoch: 8, step: 16, missing: 24, unexpected: 32, skipped: 40);
        check!(ddp_sampler, 48, struct_size: 0, dataset_size: 8, seed: 16, rank: 24, size: 28, shuffle: 32, drop_last: 36, seen: 40);
        check!(ddp_custom_options, 32, struct_size: 0, rate: 8, weight_decay: 16, whole_tensors: 24, reserved: 28);
        check!(ddp_update_slice, 224, struct_size: 0, index: 8, dtype: 12, value: 16, grad: 24, state: 32, state_count: 160, device: 164, device_index: 168, reserved: 172, first: 176, count: 184, step: 192, rate: 200, weight_decay: 208, stream: 216);
        check!(ddp_powersgd_options, 48, struct_size: 0, seed: 8, start_pass: 16, min_compression_rate: 24, rank: 32, warm_start: 36, error_feedback: 40);
        check!(ddp_recover_options, 32, struct_size: 0, wait_ms: 8, min_ranks: 16, allow_half: 20, cool_down_ms: 24);
        check!(ddp_recovery, 80, struct_size: 0, generation: 8, rank: 16, size: 20, previous_rank: 24, previous_size: 28, source: 32, reserved: 36, seconds: 40, step: 48, went_back: 56, kept_epoch: 64, kept_step: 72);
        check!(ddp_rank_progress, 40, struct_size: 0, pass_index: 8, bucket: 16, in_call: 20, silent: 24, call: 32, reserved: 36);
        check!(ddp_virtual_ranks, 24, struct_size: 0, total: 8, first: 12, count: 16, reserved: 20);
        check!(ddp_outer_options, 64, struct_size: 0, every: 8, overlap: 16, rate: 24, momentum: 32, keep: 40, fragments: 48, nesterov: 52, bits: 56, error_feedback: 60);
        check!(ddp_outer_stats, 48, struct_size: 0, steps: 8, exchanges: 16, under_way: 24, sent_bytes: 32, wait_ns: 40);
        check!(ddp_batch_norm_options, 32, struct_size: 0, epsilon: 8, momentum: 16, training: 24, accumulate: 28);
        check!(ddp_trace_options, 16, struct_size: 0, capacity: 8);
    }
}
