// SPDX-License-Identifier: Apache-2.0
//! Options with the library's defaults in them: `SgdOptions::new().rate(0.5)`. What a field means stands in the C header, with [`crate::sys`].
use crate::error::{check, Error, Status};
use crate::{sys, Backend, Reduce};

macro_rules! options {
    ($(#[$about:meta])* $name:ident, $struct:ident, $init:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name(pub(crate) sys::$struct);

        impl $name {
            pub fn new() -> $name {
                unsafe {
                    let mut value = crate::error::sized::<sys::$struct>();
                    check(sys::$init(&mut value, value.struct_size)).expect("a size that the library knows");
                    $name(value)
                }
            }
            $(
                pub fn $field(mut self, value: $type) -> $name {
                    self.0.$field = value.into();
                    self
                }
            )*
        }

        impl Default for $name {
            fn default() -> $name {
                $name::new()
            }
        }
    };
}

options!(
    /// Options of a group. Times are in milliseconds.
    GroupOptions, ddp_group_options, ddp_group_options_init {
    rank: i32, world_size: i32, backend: Backend, device_index: i32, timeout_ms: i64, heartbeat_ms: i64, dead_after_ms: i64,
    rendezvous_timeout_ms: i64, sum_order: i32, reproducible: bool, nccl_max_ctas: i32, recoverable: bool, first_port: i32,
    last_port: i32, join: bool, virtual_ranks: i32, connect_all: bool, links: i32, requests: bool,
    one_thread: bool,
});
options!(
    /// Options of a model. All ranks must agree.
    ModelOptions, ddp_model_options, ddp_model_options_init {
    first_bucket_bytes: i64, bucket_bytes: i64, reduce: Reduce, unused: i32, progress: i32, drift: i32, check_every: i64, divisor: i32,
    uneven_inputs: bool, wire: i32, own_values: bool,
});
options!(
    /// What every rule shares: where its work runs, how it takes gradients and what it keeps.
    OptimizerOptions, ddp_optimizer_options, ddp_optimizer_options_init {
    shard: bool, in_backward: bool, undo: bool, master_weights: bool, nonfinite: Nonfinite, max_norm: f64, clip_value: f64,
    divide_in_step: bool, late_values: bool,
});
options!(
    /// The rule of stochastic gradient descent.
    SgdOptions, ddp_sgd_options, ddp_sgd_options_init {
    rate: f64, momentum: f64, dampening: f64, weight_decay: f64, nesterov: bool,
});
options!(
    /// The rule of Adam and AdamW.
    AdamOptions, ddp_adam_options, ddp_adam_options_init {
    rate: f64, beta1: f64, beta2: f64, epsilon: f64, weight_decay: f64, decoupled: bool,
});
options!(
    /// What a rule of the program is given.
    CustomOptions, ddp_custom_options, ddp_custom_options_init {
    rate: f64, weight_decay: f64, whole_tensors: bool,
});
options!(
    /// Options of the loss scale.
    LossScaleOptions, ddp_loss_scale_options, ddp_loss_scale_options_init {
    initial: f64, growth: f64, backoff: f64, minimum: f64, maximum: f64, interval: i64,
});
options!(
    /// Options of a recovery.
    RecoverOptions, ddp_recover_options, ddp_recover_options_init {
    wait_ms: i64, min_ranks: i32, allow_half: bool, cool_down_ms: i64,
});

/// What a step does about gradients with infinite or NaN elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonfinite {
    Keep,
    Skip,
    Fail,
}

impl From<Nonfinite> for i32 {
    fn from(value: Nonfinite) -> i32 {
        match value {
            Nonfinite::Keep => sys::DDP_NONFINITE_KEEP,
            Nonfinite::Skip => sys::DDP_NONFINITE_SKIP,
            Nonfinite::Fail => sys::DDP_NONFINITE_FAIL,
        }
    }
}

pub(crate) fn not_of_this_model(what: &str) -> Error {
    Error::new(Status::InvalidArgument, format!("the {} belongs to another model", what))
}
