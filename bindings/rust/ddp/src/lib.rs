// SPDX-License-Identifier: Apache-2.0
//! Distributed data parallel training: gradients of many processes are averaged while backward still computes. A safe layer over the C
//! library libddp; [`sys`] has all of its functions, and every object here gives its C handle.
//!
//! ```no_run
//! use ddp::{Group, Model, Optimizer, PassKind, SgdOptions};
//!
//! fn main() -> ddp::Result<()> {
//!     let group = Group::new()?; // rank and size come from the launcher
//!     let mut model = Model::new(&group, Default::default())?;
//!     let line = model.add_parameter("line", vec![0f32; 2], &[2])?;
//!     model.commit()?; // now every rank has rank 0's values
//!     let mut sgd = Optimizer::sgd(&mut model, SgdOptions::new().rate(0.5), Default::default())?;
//!     for step in 0..300 {
//!         let x = ((step * 7 + group.rank() * 3) % 10) as f32 / 5.0 - 1.0;
//!         let mut pass = model.backward(PassKind::Reduce)?;
//!         let (values, mut grads) = pass.split();
//!         let w = values.get(line)?;
//!         let miss = w[0] * x + w[1] - (3.0 * x - 1.0);
//!         grads.get(line)?.copy_from_slice(&[miss * x, miss]);
//!         pass.ready(line)?; // from here on libddp sends it
//!         pass.end()?; // now it is the mean over all ranks
//!         sgd.step(&mut model)?;
//!     }
//!     println!("rank {} of {}: {:?}", group.rank(), group.size(), model.value(line)?);
//!     Ok(())
//! }
//! ```
//!
//! **Memory.** A model owns what it trains: values move in with [`Model::add_parameter`], gradients are the library's, and both are borrowed
//! as slices. While a pass is open they can be reached through the pass alone, and of a parameter that is marked not at all, because from
//! then on the library works on it.
//!
//! **Threads.** The C library wants everything that belongs to one model used by one thread at a time. So a [`Group`] and all that is made of
//! it stay on the thread that made them (they are neither `Send` nor `Sync`; what cannot go elsewhere cannot be used there). An
//! [`Aborter`] is both, so that another thread can end what waits. Functions of yours that the library calls on its own threads
//! ([`Optimizer::custom`]) must be `Send + Sync`.
//!
//! ```compile_fail,E0277
//! fn elsewhere<T: Send>(_: T) {}
//! elsewhere(ddp::Group::new().unwrap());
//! ```
//! ```compile_fail,E0277
//! fn elsewhere<T: Send>() {}
//! elsewhere::<ddp::Model>();
//! ```
//!
//! **Errors** are an [`Error`] with a [`Status`] to act on and one sentence that names the culprit. A panic in a function of yours does not
//! cross C: it becomes the error of the call that it was made in.

pub use ddp_sys as sys;

mod custom;
mod ema;
mod error;
mod group;
mod log;
mod messages;
mod model;
mod optimizer;
mod options;
mod pass;
mod request;
mod sampler;
mod state;
mod tensor;

pub use custom::Slice;
pub use ema::Ema;
pub use error::{Details, Error, Result, Status};
pub use log::{LogLevel, LogListener, LogMessage};
pub use group::{Aborter, Backend, Group, Kept, Parts, Recovery, Reduce};
pub use model::{Buffer, Model, Parameter, Stats};
pub use optimizer::Optimizer;
pub use options::{
    AdamOptions, CustomOptions, GroupOptions, LossScaleOptions, ModelOptions, Nonfinite, OptimizerOptions, RecoverOptions, SgdOptions,
};
pub use pass::{Gradients, Pass, PassKind, Values};
pub use request::{wait_any, Request};
pub use sampler::Sampler;
pub use state::{Loaded, State};
pub use tensor::{Bf16, Element, Float, F16};

/// Version of the loaded library, such as "0.1.0".
pub fn version() -> String {
    error::text(unsafe { sys::ddp_version_string() }).unwrap_or_default()
}
