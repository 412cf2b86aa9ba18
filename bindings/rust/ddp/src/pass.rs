// SPDX-License-Identifier: Apache-2.0
//! One backward pass.
use crate::error::{c_string, check, Error, Result, Status};
use crate::{sys, Float, Model, Parameter};
use std::ops::Range;
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
    marked: Vec<Ranges>,
}

/// Elements of one gradient that are marked.
type Ranges = Vec<Range<usize>>;

/// Values of the parameters of an open pass.
pub struct Values<'p> {
    model: &'p Model,
    marked: &'p [Ranges],
}

/// Gradients of an open pass.
pub struct Gradients<'p> {
    model: &'p Model,
    marked: &'p [Ranges],
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
        let marked = vec![Ranges::new(); self.parameter_count()];
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
        self.marked[index as usize].push(0..usize::MAX);
        Ok(())
    }

    /// These elements of the flattened gradient are complete: one tensor that holds many layers. The gradient is marked when each of its
    /// elements is, once; [`Gradients::range`] gives those that are not marked yet.
    pub fn range_ready<T: Float>(&mut self, parameter: Parameter<T>, elements: Range<usize>) -> Result<()> {
        let index = self.model.own(parameter)?;
        let count = elements.end.saturating_sub(elements.start);
        check(unsafe { sys::ddp_model_mark_range_ready(self.model.handle(), index, elements.start as i64, count as i64, null_mut()) })?;
        self.marked[index as usize].push(elements);
        Ok(())
    }

    /// Another array is the gradient of a parameter from here on, as long as the former one: for programs whose gradients move. Before the
    /// mark, of a parameter of [`Model::add_parameter_with_grad`] or [`Model::add_parameter_without_grad`].
    pub fn set_grad<T: Float>(&mut self, parameter: Parameter<T>, grad: Vec<T>) -> Result<()> {
        let index = self.model.own(parameter)?;
        let (_, count) = self.model.value_memory(parameter)?;
        if grad.len() != count {
            let text = format!("parameter {} has {} elements, the gradient that is given {}", index, count, grad.len());
            return Err(Error::new(Status::InvalidArgument, text));
        }
        self.model.set_grad(index, grad)
    }

    /// The gradient will not come in this pass on this rank (model option `unused`).
    pub fn unused<T: Float>(&mut self, parameter: Parameter<T>) -> Result<()> {
        let index = self.model.own(parameter)?;
        check(unsafe { sys::ddp_model_mark_unused(self.model.handle(), index) })?;
        self.marked[index as usize].push(0..usize::MAX);
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
    /// With an optimizer that updates within the pass, only until a part of the parameter is marked.
    pub fn get<T: Float>(&self, parameter: Parameter<T>) -> Result<&'p [T]> {
        let index = self.model.own(parameter)?;
        if self.model.updated_in_backward && !self.marked[index as usize].is_empty() {
            return Err(Error::new(Status::InvalidState, format!("parameter {} is marked, and its value is being updated", index)));
        }
        self.model.value_memory(parameter).map(|(data, count)| unsafe { std::slice::from_raw_parts(data, count) })
    }
}

impl Gradients<'_> {
    /// Until a part of the parameter is marked. One at a time: the slice ends before the next is asked for.
    pub fn get<T: Float>(&mut self, parameter: Parameter<T>) -> Result<&mut [T]> {
        let (_, count) = self.model.grad_memory(parameter)?;
        self.range(parameter, 0..count)
    }

    /// Elements of the flattened gradient, of which none is marked.
    pub fn range<T: Float>(&mut self, parameter: Parameter<T>, elements: Range<usize>) -> Result<&mut [T]> {
        let index = self.model.own(parameter)?;
        let (data, count) = self.model.grad_memory(parameter)?;
        if elements.start > elements.end || elements.end > count {
            let text = format!("parameter {} has {} elements, and not {:?}", index, count, elements);
            return Err(Error::new(Status::InvalidArgument, text));
        }
        let whole = count == 0 && !self.marked[index as usize].is_empty();
        if whole || self.marked[index as usize].iter().any(|marked| marked.start < elements.end && elements.start < marked.end) {
            return Err(Error::new(Status::InvalidState, format!("parameter {} is marked: its gradient belongs to the library", index)));
        }
        Ok(unsafe { std::slice::from_raw_parts_mut(data.add(elements.start), elements.len()) })
    }
}
