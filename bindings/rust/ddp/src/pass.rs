// SPDX-License-Identifier: Apache-2.0
//! One backward pass.
use crate::error::{c_string, check, Error, Result, Status};
use crate::{sys, Float, Model, Parameter};
use std::ptr::null_mut;

/// What a pass does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassKind {
    /// Gradients are reduced over the ranks; what was accumulated before is part of them.
    Reduce,
    /// Nothing is sent: a later pass sends the whole.
    Accumulate,
    /// Nothing is sent, and the gradients are final on this rank alone.
    Local,
    /// Of a rank with several parts: for each but the last.
    Part,
}

/// An open pass. Gradients are written through it and marked when they are complete. One that is dropped without [`Pass::end`], by `?` or
/// a panic, is abandoned: the other ranks learn of it and do not wait.
#[must_use]
pub struct Pass<'m> {
    model: &'m mut Model,
    marked: Vec<bool>,
}

/// Values of the parameters of an open pass.
pub struct Values<'p> {
    model: &'p Model,
    marked: &'p [bool],
}

/// Gradients of an open pass.
pub struct Gradients<'p> {
    model: &'p Model,
    marked: &'p [bool],
}

impl Model {
    /// Open a pass.
    pub fn backward(&mut self, kind: PassKind) -> Result<Pass<'_>> {
        let mode = match kind {
            PassKind::Reduce => sys::DDP_PASS_REDUCE,
            PassKind::Accumulate => sys::DDP_PASS_ACCUMULATE,
            PassKind::Local => sys::DDP_PASS_LOCAL,
            PassKind::Part => sys::DDP_PASS_PART,
        };
        check(unsafe { sys::ddp_model_begin_backward(self.handle(), mode) })?;
        self.open = true;
        let marked = vec![false; self.parameter_count()];
        Ok(Pass { model: self, marked })
    }
}

impl Pass<'_> {
    /// Values to read and gradients to write, at the same time; before the next mark.
    pub fn split(&mut self) -> (Values<'_>, Gradients<'_>) {
        let (model, marked) = (&*self.model, self.marked.as_slice());
        (Values { model, marked }, Gradients { model, marked })
    }

    /// The gradient is complete: from here on it belongs to the library, until the pass has ended.
    pub fn ready<T: Float>(&mut self, parameter: Parameter<T>) -> Result<()> {
        let index = self.model.own(parameter)?;
        check(unsafe { sys::ddp_model_mark_ready(self.model.handle(), index, null_mut()) })?;
        self.marked[index as usize] = true;
        Ok(())
    }

    /// The gradient will not come in this pass on this rank (model option `unused`).
    pub fn unused<T: Float>(&mut self, parameter: Parameter<T>) -> Result<()> {
        let index = self.model.own(parameter)?;
        check(unsafe { sys::ddp_model_mark_unused(self.model.handle(), index) })?;
        self.marked[index as usize] = true;
        Ok(())
    }

    /// Close the pass: send what is left, and wait for all ranks.
    pub fn end(self) -> Result<()> {
        self.model.open = false; // it is over whatever the result, and there is nothing to abandon
        check(unsafe { sys::ddp_model_end_backward(self.model.handle(), null_mut()) }).map_err(|error| self.model.explained(error))
    }

    /// Leave the pass, with a reason for the other ranks.
    pub fn abandon(self, reason: &str) -> Result<()> {
        let reason = c_string(reason)?; // if this fails the pass is dropped, and abandoned without it
        self.model.open = false;
        check(unsafe { sys::ddp_model_abandon_backward(self.model.handle(), reason.as_ptr().cast(), null_mut()) })
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.model.open {
            let reason = b"the pass was dropped without an end\0";
            unsafe { sys::ddp_model_abandon_backward(self.model.handle(), reason.as_ptr().cast(), null_mut()) };
            self.model.open = false;
        }
    }
}

impl<'p> Values<'p> {
    /// With an optimizer that updates within the pass, only until the parameter is marked.
    pub fn get<T: Float>(&self, parameter: Parameter<T>) -> Result<&'p [T]> {
        let index = self.model.own(parameter)?;
        if self.model.updated_in_backward && self.marked[index as usize] {
            return Err(Error::new(Status::InvalidState, format!("parameter {} is marked, and its value is being updated", index)));
        }
        self.model.value_memory(parameter).map(|(data, count)| unsafe { std::slice::from_raw_parts(data, count) })
    }
}

impl Gradients<'_> {
    /// Until the parameter is marked. One at a time: the slice ends before the next is asked for.
    pub fn get<T: Float>(&mut self, parameter: Parameter<T>) -> Result<&mut [T]> {
        let index = self.model.own(parameter)?;
        if self.marked[index as usize] {
            return Err(Error::new(Status::InvalidState, format!("parameter {} is marked: its gradient belongs to the library", index)));
        }
        self.model.grad_memory(parameter).map(|(data, count)| unsafe { std::slice::from_raw_parts_mut(data, count) })
    }
}
