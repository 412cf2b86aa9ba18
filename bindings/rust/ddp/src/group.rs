// SPDX-License-Identifier: Apache-2.0
//! Groups: who acts together, and collectives on slices.
use crate::error::{c_string, check, sized, Result};
use crate::tensor::{of_mut, of_slice, Element};
use crate::{sys, GroupOptions};
use std::cell::Cell;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// How values of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    Average,
    Sum,
    Min,
    Max,
    Product,
}

impl From<Reduce> for i32 {
    fn from(value: Reduce) -> i32 {
        match value {
            Reduce::Average => sys::DDP_AVERAGE,
            Reduce::Sum => sys::DDP_SUM,
            Reduce::Min => sys::DDP_MIN,
            Reduce::Max => sys::DDP_MAX,
            Reduce::Product => sys::DDP_PRODUCT,
        }
    }
}

/// How the bytes of a group travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Auto,
    Gloo,
    Nccl,
    Shm,
    Local,
}

const BACKENDS: [(Backend, i32); 5] = [
    (Backend::Auto, sys::DDP_BACKEND_AUTO),
    (Backend::Gloo, sys::DDP_BACKEND_GLOO),
    (Backend::Nccl, sys::DDP_BACKEND_NCCL),
    (Backend::Shm, sys::DDP_BACKEND_SHM),
    (Backend::Local, sys::DDP_BACKEND_LOCAL),
];

impl From<Backend> for i32 {
    fn from(value: Backend) -> i32 {
        BACKENDS.iter().find(|(backend, _)| *backend == value).map_or(sys::DDP_BACKEND_AUTO, |(_, number)| *number)
    }
}

/// What a recovery came to.
#[derive(Clone, Debug)]
pub struct Recovery {
    pub generation: i64,
    pub rank: usize,
    pub size: usize,
    pub previous_rank: usize,
    pub previous_size: usize,
    /// Rank (of now) whose state all ranks have now; `None`: all had the same.
    pub source: Option<usize>,
    /// Steps that all ranks have made; `None`: a checkpoint has to be loaded, or no optimizer counts.
    pub step: Option<i64>,
    /// The state of [`crate::State::keep`] to which all ranks went back; `None`: they did not.
    pub kept: Option<Kept>,
}

/// A state to which all ranks went back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Steps that are repeated.
    pub went_back: i64,
    pub epoch: i64,
    pub step: i64,
    /// The program's own bytes that were kept with it.
    pub own: Vec<u8>,
}

/// Which parts of the global batch a rank works on, of `total`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    pub total: usize,
    pub mine: std::ops::Range<usize>,
}

/// What a group and its models share.
pub(crate) struct Shared {
    pub(crate) handle: *mut sys::ddp_group,
    pub(crate) models: Cell<usize>, // those that are alive, for Model::recover
}

/// Ranks that act together. Dropped, it leaves them; models made from it stay objects whose collectives fail.
pub struct Group {
    pub(crate) shared: Rc<Shared>,
    alive: Arc<Mutex<Living>>,
}

struct Living(*mut sys::ddp_group); // NULL when the group was dropped
unsafe impl Send for Living {} // ddp_group_abort may be called on any thread at any time

/// Ends, from any thread, what waits in a group.
#[derive(Clone)]
pub struct Aborter(Arc<Mutex<Living>>);

impl Aborter {
    /// Break the group: everything pending or later on it fails on all ranks with `Status::Aborted`, and `reason` in the text. Nothing
    /// happens to a group that was dropped.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = c_string(reason)?;
        let living = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if living.0.is_null() {
            return Ok(());
        }
        check(unsafe { sys::ddp_group_abort(living.0, reason.as_ptr().cast()) })
    }
}

impl Group {
    /// Meet the others where the launcher says; started alone: a group of one.
    pub fn new() -> Result<Group> {
        Group::meet("env://", GroupOptions::new())
    }

    /// Meet the others at a rendezvous (`env://`, `tcp://host:port`, `file:///path`, `local://name`). Waits for all ranks.
    pub fn meet(rendezvous: &str, options: GroupOptions) -> Result<Group> {
        let rendezvous = c_string(rendezvous)?;
        let mut made = null_mut();
        check(unsafe { sys::ddp_group_create(rendezvous.as_ptr().cast(), &options.0, &mut made) })?;
        Ok(Group::own(made))
    }

    fn own(handle: *mut sys::ddp_group) -> Group {
        Group { shared: Rc::new(Shared { handle, models: Cell::new(0) }), alive: Arc::new(Mutex::new(Living(handle))) }
    }

    /// Divide the group: ranks of the same color become a group of their own, numbered by key. `None`: this rank gets none.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Group>> {
        let mut made = null_mut();
        let color = color.map_or(sys::DDP_NO_COLOR, |color| color as i32);
        check(unsafe { sys::ddp_group_split(self.handle(), color, key, std::ptr::null(), &mut made) })?;
        Ok(if made.is_null() { None } else { Some(Group::own(made)) })
    }

    /// For functions of [`crate::sys`].
    pub fn handle(&self) -> *mut sys::ddp_group {
        self.shared.handle
    }

    pub fn rank(&self) -> usize {
        unsafe { sys::ddp_group_get_rank(self.handle()) as usize }
    }

    /// Of this group in this process, from 1, as in [`crate::LogMessage`].
    pub fn number(&self) -> i64 {
        unsafe { sys::ddp_group_get_number(self.handle()) }
    }

    pub fn size(&self) -> usize {
        unsafe { sys::ddp_group_get_size(self.handle()) as usize }
    }

    /// What the group really uses; `None`: something that this crate does not know.
    pub fn backend(&self) -> Option<Backend> {
        let number = unsafe { sys::ddp_group_get_backend(self.handle()) };
        BACKENDS.iter().find(|(_, known)| *known == number).map(|(backend, _)| *backend)
    }

    /// The first cause that broke the group, if it is broken.
    pub fn status(&self) -> Result<()> {
        check(unsafe { sys::ddp_group_status(self.handle()) })
    }

    /// Show a number of the program, such as a loss, to those who watch the job: ddprun has the last value of each rank in its progress
    /// line, in --report and in --metrics.
    pub fn log_metric(&self, name: &str, value: f64) -> Result<()> {
        let name = c_string(name)?;
        check(unsafe { sys::ddp_group_log_metric(self.handle(), name.as_ptr().cast(), value) })
    }

    pub fn aborter(&self) -> Aborter {
        Aborter(self.alive.clone())
    }

    pub fn barrier(&self) -> Result<()> {
        check(unsafe { sys::ddp_group_barrier(self.handle()) })
    }

    /// Reduce over all ranks, in place: afterwards every rank holds the same bits.
    pub fn all_reduce<T: Element>(&self, values: &mut [T], op: Reduce) -> Result<()> {
        check(unsafe { sys::ddp_group_all_reduce(self.handle(), &of_mut(values)?, op.into(), null_mut()) })
    }

    /// Copy the values of rank `root` to all ranks.
    pub fn broadcast<T: Element>(&self, values: &mut [T], root: usize) -> Result<()> {
        check(unsafe { sys::ddp_group_broadcast(self.handle(), &of_mut(values)?, root as i32, null_mut()) })
    }

    /// The values of all ranks, one rank after the other.
    pub fn all_gather<T: Element>(&self, values: &[T]) -> Result<Vec<T>> {
        let mut all: Vec<T> = values.iter().copied().cycle().take(values.len() * self.size()).collect();
        check(unsafe { sys::ddp_group_all_gather(self.handle(), &of_slice(values)?, &of_mut(&mut all)?, null_mut()) })?;
        Ok(all)
    }

    /// Reduce `values` over all ranks and keep this rank's part: as many elements as `part` has.
    pub fn reduce_scatter<T: Element>(&self, values: &mut [T], part: &mut [T], op: Reduce) -> Result<()> {
        check(unsafe { sys::ddp_group_reduce_scatter(self.handle(), &of_mut(values)?, &of_mut(part)?, op.into(), null_mut()) })
    }

    /// Reduce a few numbers (sum of losses, number of samples) in one message.
    pub fn reduce_metrics(&self, values: &mut [f64], op: Reduce) -> Result<()> {
        check(unsafe { sys::ddp_group_reduce_metrics(self.handle(), values.as_mut_ptr(), values.len() as i64, op.into()) })
    }

    /// ... with as many numbers for each part of this rank, one part after the other; the first become the result.
    pub fn reduce_part_metrics(&self, values: &mut [f64], op: Reduce) -> Result<()> {
        let count = values.len() / self.parts()?.mine.len();
        check(unsafe { sys::ddp_group_reduce_part_metrics(self.handle(), values.as_mut_ptr(), count as i64, op.into()) })
    }

    /// Which parts of the global batch are this rank's; without the option `virtual_ranks` one, with the number of the rank.
    pub fn parts(&self) -> Result<Parts> {
        let mut found = unsafe { sized::<sys::ddp_virtual_ranks>() };
        check(unsafe { sys::ddp_group_get_virtual_ranks(self.handle(), &mut found) })?;
        let first = found.first as usize;
        Ok(Parts { total: found.total as usize, mine: first..first + found.count as usize })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.alive.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).0 = null_mut();
        unsafe { sys::ddp_group_destroy(self.handle()) }
    }
}
