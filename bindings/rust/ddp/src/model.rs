// SPDX-License-Identifier: Apache-2.0
//! Models: what is trained, and what all ranks agree on.
use crate::custom::Rule;
use crate::error::{c_string, check, sized, text, Error, Result, Status};
use crate::group::Shared;
use crate::tensor::{describe, elements, empty, Element, Float};
use crate::{sys, Group, Kept, ModelOptions, RecoverOptions, Recovery};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Weak;

/// A parameter of one model, with elements of type T.
#[derive(Debug)]
pub struct Parameter<T> {
    pub(crate) index: i32,
    pub(crate) model: *const sys::ddp_model,
    elements: PhantomData<fn() -> T>,
}

impl<T> Clone for Parameter<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Parameter<T> {}

impl<T> Parameter<T> {
    /// Its number, as in the texts of errors.
    pub fn index(&self) -> usize {
        self.index as usize
    }
}

/// Numbers of a model's passes.
pub type Stats = sys::ddp_model_stats;

/// Parameters and buffers of a program, and their gradients.
pub struct Model {
    handle: *mut sys::ddp_model,
    group: Rc<Shared>,
    pub(crate) open: bool,
    pub(crate) updated_in_backward: bool, // by an optimizer: values of marked parameters change within the pass
    pub(crate) rules: Vec<Weak<Rule>>,    // of the program, for what they said when they failed
    memory: Vec<Box<dyn FnOnce()>>,       // frees what was lent
    grads: HashMap<i32, Box<dyn FnOnce()>>, // by parameter: frees the gradient that was lent last
}

impl Model {
    pub fn new(group: &Group, options: ModelOptions) -> Result<Model> {
        let mut handle = null_mut();
        check(unsafe { sys::ddp_model_create(group.handle(), &options.0, &mut handle) })?;
        group.shared.models.set(group.shared.models.get() + 1);
        Ok(Model {
            handle,
            group: group.shared.clone(),
            open: false,
            updated_in_backward: false,
            rules: Vec::new(),
            memory: Vec::new(),
            grads: HashMap::new(),
        })
    }

    /// For functions of [`crate::sys`].
    pub fn handle(&self) -> *mut sys::ddp_model {
        self.handle
    }

    /// A parameter that begins with `values` and has this shape, in the order of the forward computation. The library owns the gradient.
    pub fn add_parameter<T: Float>(&mut self, name: &str, values: Vec<T>, shape: &[usize]) -> Result<Parameter<T>> {
        let (name, tensor, free) = self.lend(name, values, shape)?;
        let mut index = -1;
        let added =
            check(unsafe { sys::ddp_model_add_parameter(self.handle, name.as_ptr().cast(), &tensor, std::ptr::null(), &mut index) });
        self.keep(added, free)?;
        Ok(Parameter { index, model: self.handle, elements: PhantomData })
    }

    /// A parameter whose gradient is lent, too: [`crate::Pass::set_grad`] may give another one in each pass.
    pub fn add_parameter_with_grad<T: Float>(&mut self, name: &str, values: Vec<T>, grad: Vec<T>, shape: &[usize]) -> Result<Parameter<T>> {
        let (_, grad, free_grad) = self.lend(name, grad, shape)?;
        let mut index = -1;
        let added = self.lend(name, values, shape).and_then(|(name, tensor, free)| {
            let added = check(unsafe { sys::ddp_model_add_parameter(self.handle, name.as_ptr().cast(), &tensor, &grad, &mut index) });
            self.keep(added, free)
        });
        self.keep_grad(index, added, free_grad)?;
        Ok(Parameter { index, model: self.handle, elements: PhantomData })
    }

    /// A parameter whose gradient comes later: [`crate::Pass::set_grad`] gives it in each pass, before its mark.
    pub fn add_parameter_without_grad<T: Float>(&mut self, name: &str, values: Vec<T>, shape: &[usize]) -> Result<Parameter<T>> {
        let (name, tensor, free) = self.lend(name, values, shape)?;
        let mut index = -1;
        let added =
            check(unsafe { sys::ddp_model_add_parameter_without_grad(self.handle, name.as_ptr().cast(), &tensor, &mut index) });
        self.keep(added, free)?;
        Ok(Parameter { index, model: self.handle, elements: PhantomData })
    }

    /// Frees the gradient of a parameter that was added without one: the next pass needs another [`crate::Pass::set_grad`].
    pub fn drop_grad<T: Float>(&mut self, parameter: Parameter<T>) -> Result<()> {
        self.closed()?;
        let index = self.own(parameter)?;
        check(unsafe { sys::ddp_model_set_grad(self.handle, index, std::ptr::null()) })?;
        if let Some(free) = self.grads.remove(&index) {
            free();
        }
        Ok(())
    }

    /// A gradient of the program takes the place of the former one, in an open pass before its mark.
    pub(crate) fn set_grad<T: Float>(&mut self, index: i32, grad: Vec<T>) -> Result<()> {
        let count = [grad.len()];
        let (_, tensor, free) = self.lend("", grad, &count)?;
        let set = check(unsafe { sys::ddp_model_set_grad(self.handle, index, &tensor) });
        self.keep_grad(index, set, free)
    }

    fn keep_grad(&mut self, index: i32, given: Result<()>, free: Box<dyn FnOnce()>) -> Result<()> {
        let unused = if given.is_ok() { self.grads.insert(index, free) } else { Some(free) };
        if let Some(free) = unused {
            free();
        }
        given
    }

    /// A tensor that is not trained but belongs to the model and its checkpoints. The library only reads and writes it in
    /// [`Model::commit`], [`Model::sync_buffers`], loads and recoveries.
    pub fn add_buffer<T: Element>(&mut self, name: &str, values: Vec<T>, shape: &[usize]) -> Result<Buffer<T>> {
        let (data, count) = (values.as_ptr() as *mut T, values.len());
        let (name, tensor, free) = self.lend(name, values, shape)?;
        let mut index = -1;
        let added = check(unsafe { sys::ddp_model_add_buffer(self.handle, name.as_ptr().cast(), &tensor, &mut index) });
        self.keep(added, free)?;
        Ok(Buffer { data, count, index, model: self.handle })
    }

    /// The memory moves to where nothing of Rust's claims it for itself; the function frees it.
    #[allow(clippy::type_complexity)]
    fn lend<T: Element>(
        &self,
        name: &str,
        values: Vec<T>,
        shape: &[usize],
    ) -> Result<(std::ffi::CString, sys::ddp_tensor, Box<dyn FnOnce()>)> {
        let name = c_string(name)?;
        describe(values.as_ptr(), values.len(), shape)?; // or the values would be lost
        let mut values = std::mem::ManuallyDrop::new(values);
        let (data, count, capacity) = (values.as_mut_ptr(), values.len(), values.capacity());
        let tensor = describe(data, count, shape)?;
        Ok((name, tensor, Box::new(move || drop(unsafe { Vec::from_raw_parts(data, count, capacity) }))))
    }

    fn keep(&mut self, added: Result<()>, free: Box<dyn FnOnce()>) -> Result<()> {
        if added.is_err() {
            free();
        } else {
            self.memory.push(free);
        }
        added
    }

    /// Agree with all ranks on the model; rank 0's values go to all.
    pub fn commit(&mut self) -> Result<()> {
        check(unsafe { sys::ddp_model_commit(self.handle, null_mut()) })
    }

    /// Leads the committed model back to building, with what it has learnt: parameters and buffers are added and removed, then
    /// [`Model::commit`] takes it into use again. What stays keeps its value and gradient, the state of optimizers and averages. Collective.
    /// Experimental.
    pub fn reopen(&mut self) -> Result<()> {
        self.closed()?;
        check(unsafe { sys::ddp_model_reopen(self.handle, null_mut()) })
    }

    /// Takes a parameter out of a model that is building. Its memory is freed with the model. Experimental.
    pub fn remove_parameter<T>(&mut self, parameter: Parameter<T>) -> Result<()> {
        let index = self.own(parameter)?;
        check(unsafe { sys::ddp_model_remove_parameter(self.handle, index) })?;
        if let Some(free) = self.grads.remove(&index) {
            free();
        }
        Ok(())
    }

    /// Takes a buffer out of a model that is building. Its memory is freed with the model. Experimental.
    pub fn remove_buffer<T>(&mut self, buffer: Buffer<T>) -> Result<()> {
        if buffer.model != self.handle {
            return Err(crate::options::not_of_this_model("buffer"));
        }
        check(unsafe { sys::ddp_model_remove_buffer(self.handle, buffer.index) })
    }

    pub fn parameter_count(&self) -> usize {
        unsafe { sys::ddp_model_get_parameter_count(self.handle) as usize }
    }

    /// Nothing but the pass itself may reach memory that the library works on.
    pub(crate) fn closed(&self) -> Result<()> {
        if self.open {
            return Err(Error::new(Status::InvalidState, "a pass of the model is open and was forgotten: its memory cannot be reached"));
        }
        Ok(())
    }

    /// Why a rule of the program failed is known on this side alone.
    pub(crate) fn explained(&self, error: Error) -> Error {
        let said = self.rules.iter().filter_map(Weak::upgrade).find_map(|rule| rule.take_failure());
        match said {
            Some(cause) if error.status() == Status::Callback => error.with_cause(&cause),
            _ => error,
        }
    }

    pub(crate) fn own<T>(&self, parameter: Parameter<T>) -> Result<i32> {
        if parameter.model != self.handle {
            return Err(crate::options::not_of_this_model("parameter"));
        }
        Ok(parameter.index)
    }

    pub(crate) fn value_memory<T: Float>(&self, parameter: Parameter<T>) -> Result<(*mut T, usize)> {
        let mut tensor = empty();
        check(unsafe { sys::ddp_model_get_value(self.handle, self.own(parameter)?, &mut tensor) })?;
        elements(&tensor)
    }

    pub(crate) fn grad_memory<T: Float>(&self, parameter: Parameter<T>) -> Result<(*mut T, usize)> {
        let mut tensor = empty();
        check(unsafe { sys::ddp_model_get_grad(self.handle, self.own(parameter)?, &mut tensor) })?;
        elements(&tensor)
    }

    pub fn value<T: Float>(&self, parameter: Parameter<T>) -> Result<&[T]> {
        self.closed()?;
        self.value_memory(parameter).map(|(data, count)| unsafe { std::slice::from_raw_parts(data, count) })
    }

    pub fn value_mut<T: Float>(&mut self, parameter: Parameter<T>) -> Result<&mut [T]> {
        self.closed()?;
        self.value_memory(parameter).map(|(data, count)| unsafe { std::slice::from_raw_parts_mut(data, count) })
    }

    /// The gradient: after a pass that reduces, the mean over all ranks.
    pub fn grad<T: Float>(&self, parameter: Parameter<T>) -> Result<&[T]> {
        self.closed()?;
        self.grad_memory(parameter).map(|(data, count)| unsafe { std::slice::from_raw_parts(data, count) })
    }

    pub fn grad_mut<T: Float>(&mut self, parameter: Parameter<T>) -> Result<&mut [T]> {
        self.closed()?;
        self.grad_memory(parameter).map(|(data, count)| unsafe { std::slice::from_raw_parts_mut(data, count) })
    }

    pub fn buffer<'m, T: Element>(&'m self, buffer: &Buffer<T>) -> Result<&'m [T]> {
        if buffer.model != self.handle {
            return Err(crate::options::not_of_this_model("buffer"));
        }
        Ok(unsafe { std::slice::from_raw_parts(buffer.data, buffer.count) })
    }

    pub fn buffer_mut<'m, T: Element>(&'m mut self, buffer: &Buffer<T>) -> Result<&'m mut [T]> {
        if buffer.model != self.handle {
            return Err(crate::options::not_of_this_model("buffer"));
        }
        Ok(unsafe { std::slice::from_raw_parts_mut(buffer.data, buffer.count) })
    }

    /// Set all gradients to zero, and forget what was accumulated.
    pub fn zero_grad(&mut self) -> Result<()> {
        check(unsafe { sys::ddp_model_zero_grad(self.handle, null_mut()) })
    }

    /// The program has reduced all gradients over the ranks itself, and not in a pass: they are good for one step of each
    /// optimizer, as those of a pass that reduces. They must have the same bits on all ranks. Call it on all ranks, before
    /// each such step.
    pub fn mark_reduced(&mut self) -> Result<()> {
        check(unsafe { sys::ddp_model_mark_reduced(self.handle) })
    }

    /// Norm of all gradients as one vector; p is 1, 2 or infinity.
    pub fn grad_norm(&mut self, p: f64) -> Result<f64> {
        let mut norm = 0.0;
        check(unsafe { sys::ddp_model_get_grad_norm(self.handle, p, &mut norm, null_mut()) })?;
        Ok(norm)
    }

    pub fn scale_grad(&mut self, factor: f64) -> Result<()> {
        check(unsafe { sys::ddp_model_scale_grad(self.handle, factor, null_mut()) })
    }

    /// Returns the norm before.
    pub fn clip_grad_norm(&mut self, max_norm: f64, p: f64) -> Result<f64> {
        let mut norm = 0.0;
        check(unsafe { sys::ddp_model_clip_grad_norm(self.handle, max_norm, p, &mut norm, null_mut()) })?;
        Ok(norm)
    }

    /// How much this rank's gradients count from the next pass on (option `divisor`).
    pub fn set_weight(&mut self, weight: f64) -> Result<()> {
        check(unsafe { sys::ddp_model_set_weight(self.handle, weight) })
    }

    /// Take part in a pass without a batch.
    pub fn skip_backward(&mut self) -> Result<()> {
        check(unsafe { sys::ddp_model_skip_backward(self.handle, null_mut()) })
    }

    /// Copy all buffers from one rank to the others.
    pub fn sync_buffers(&mut self, root: usize) -> Result<()> {
        check(unsafe { sys::ddp_model_sync_buffers(self.handle, root as i32, null_mut()) })
    }

    /// Fails with `Status::Mismatch` unless all ranks hold the same bits.
    pub fn check_replicas(&mut self) -> Result<()> {
        check(unsafe { sys::ddp_model_check_replicas(self.handle, null_mut()) })
    }

    /// Waits until a parameter has its value of the last step (`late_values`).
    pub fn wait_value(&mut self, index: usize) -> Result<()> {
        check(unsafe { sys::ddp_model_wait_value(self.handle, index as i32, null_mut()) })
    }

    /// Waits until all parameters have their values of the last steps.
    pub fn wait_values(&mut self) -> Result<()> {
        check(unsafe { sys::ddp_model_wait_values(self.handle) })
    }

    /// Whether a parameter has its value of the last step. Never waits.
    pub fn value_ready(&self, index: usize) -> bool {
        unsafe { sys::ddp_model_value_ready(self.handle, index as i32) == 1 }
    }

    /// A hash over names and contents of all parameters of this rank.
    pub fn hash(&self) -> Result<u64> {
        self.closed()?;
        let mut found = 0;
        check(unsafe { sys::ddp_model_get_hash(self.handle, &mut found) })?;
        Ok(found as u64)
    }

    pub fn stats(&self) -> Result<Stats> {
        let mut found = unsafe { sized::<Stats>() };
        check(unsafe { sys::ddp_model_get_stats(self.handle, &mut found) })?;
        Ok(found)
    }

    /// Remember a text under a key with the model and its checkpoints; `None` removes it.
    pub fn set_metadata(&mut self, key: &str, value: Option<&str>) -> Result<()> {
        let (key, value) = (c_string(key)?, value.map(c_string).transpose()?);
        let value = value.as_ref().map_or(std::ptr::null(), |value| value.as_ptr());
        check(unsafe { sys::ddp_model_set_metadata(self.handle, key.as_ptr().cast(), value.cast()) })
    }

    pub fn metadata(&self, key: &str) -> Result<Option<String>> {
        let (key, mut value) = (c_string(key)?, std::ptr::null());
        check(unsafe { sys::ddp_model_get_metadata(self.handle, key.as_ptr().cast(), &mut value) })?;
        Ok(text(value))
    }

    /// Go on with the ranks that are left, when ranks have died: of a group with the option `recoverable`, and this one model. (A
    /// recovery writes into all models of a group, so with several of them it is a matter for [`crate::sys`].)
    pub fn recover(&mut self, options: RecoverOptions) -> Result<Recovery> {
        if self.group.models.get() != 1 {
            return Err(Error::new(Status::InvalidState, "Model::recover: the group has several models"));
        }
        let mut found = unsafe { sized::<sys::ddp_recovery>() };
        check(unsafe { sys::ddp_group_recover(self.group.handle, &options.0, &mut found) })?;
        self.open = false;
        Ok(Recovery {
            generation: found.generation,
            rank: found.rank as usize,
            size: found.size as usize,
            previous_rank: found.previous_rank as usize,
            previous_size: found.previous_size as usize,
            source: usize::try_from(found.source).ok(),
            step: Some(found.step).filter(|step| *step >= 0),
            kept: self.kept(&found)?,
        })
    }

    fn kept(&self, found: &sys::ddp_recovery) -> Result<Option<Kept>> {
        if found.kept_epoch < 0 {
            return Ok(None);
        }
        let (mut own, mut bytes) = (vec![0; 65_536], 0);
        check(unsafe { sys::ddp_group_get_kept(self.group.handle, own.as_mut_ptr().cast(), own.len() as i64, &mut bytes) })?;
        own.truncate(bytes as usize);
        Ok(Some(Kept { went_back: found.went_back, epoch: found.kept_epoch, step: found.kept_step, own }))
    }
}

/// A tensor of one model that is not trained.
#[derive(Debug)]
pub struct Buffer<T> {
    data: *mut T,
    count: usize,
    index: i32,
    model: *const sys::ddp_model,
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { sys::ddp_model_destroy(self.handle) } // the lent memory is not used any more when it returns
        self.group.models.set(self.group.models.get() - 1);
        for free in self.memory.drain(..).chain(self.grads.drain().map(|(_, free)| free)) {
            free();
        }
    }
}
