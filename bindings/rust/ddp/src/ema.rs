// SPDX-License-Identifier: Apache-2.0
//! Running averages of a model's parameters.
use crate::error::{check, Result};
use crate::options::not_of_this_model;
use crate::{sys, Model};
use std::ptr::null_mut;

/// Running averages, one for each decay.
pub struct Ema {
    handle: *mut sys::ddp_ema,
    model: *const sys::ddp_model,
}

impl Ema {
    pub fn new(model: &mut Model, decays: &[f64]) -> Result<Ema> {
        let mut handle = null_mut();
        check(unsafe { sys::ddp_ema_create(model.handle(), decays.as_ptr(), decays.len() as i32, &mut handle) })?;
        Ok(Ema { handle, model: model.handle() })
    }

    /// For functions of [`crate::sys`].
    pub fn handle(&self) -> *mut sys::ddp_ema {
        self.handle
    }

    pub(crate) fn of(&self, model: &Model) -> Result<()> {
        if self.model != model.handle() {
            return Err(not_of_this_model("average"));
        }
        Ok(())
    }

    /// Take the current parameters into every average.
    pub fn update(&mut self, model: &mut Model) -> Result<()> {
        self.of(model)?;
        check(unsafe { sys::ddp_ema_update(self.handle, null_mut()) })
    }

    /// Exchange the parameters with one of the averages; again to swap back.
    pub fn swap(&mut self, model: &mut Model, which: usize) -> Result<()> {
        self.of(model)?;
        check(unsafe { sys::ddp_ema_swap(self.handle, which as i32, null_mut()) })
    }
}

impl Drop for Ema {
    fn drop(&mut self) {
        unsafe { sys::ddp_ema_destroy(self.handle) }
    }
}
