// SPDX-License-Identifier: Apache-2.0
//! Optimizers over the parameters of a model.
use crate::error::{check, Result};
use crate::options::not_of_this_model;
use crate::{sys, AdamOptions, LossScaleOptions, Model, OptimizerOptions, Parameter, SgdOptions};
use std::ptr::null_mut;

/// Updates the parameters of a model.
pub struct Optimizer {
    handle: *mut sys::ddp_optimizer,
    model: *const sys::ddp_model,
}

impl Optimizer {
    pub fn sgd(model: &mut Model, rule: SgdOptions, options: OptimizerOptions) -> Result<Optimizer> {
        Optimizer::make(model, options, |out| unsafe { sys::ddp_optimizer_create_sgd(out.0, &rule.0, &options.0, out.1) })
    }

    pub fn adam(model: &mut Model, rule: AdamOptions, options: OptimizerOptions) -> Result<Optimizer> {
        Optimizer::make(model, options, |out| unsafe { sys::ddp_optimizer_create_adam(out.0, &rule.0, &options.0, out.1) })
    }

    /// As [`Optimizer::sgd`], for these parameters ([`Parameter::index`]) alone. Otherwise an optimizer has all that have none.
    pub fn sgd_of(model: &mut Model, parameters: &[usize], rule: SgdOptions, options: OptimizerOptions) -> Result<Optimizer> {
        let list = numbers(parameters);
        Optimizer::sgd(model, rule, listing(options, &list))
    }

    /// As [`Optimizer::adam`], for these parameters alone.
    pub fn adam_of(model: &mut Model, parameters: &[usize], rule: AdamOptions, options: OptimizerOptions) -> Result<Optimizer> {
        let list = numbers(parameters);
        Optimizer::adam(model, rule, listing(options, &list))
    }

    pub(crate) fn make(
        model: &mut Model,
        options: OptimizerOptions,
        create: impl FnOnce((*mut sys::ddp_model, *mut *mut sys::ddp_optimizer)) -> sys::ddp_status,
    ) -> Result<Optimizer> {
        let mut handle = null_mut();
        check(create((model.handle(), &mut handle)))?;
        model.updated_in_backward |= options.0.in_backward != 0;
        Ok(Optimizer { handle, model: model.handle() })
    }

    /// For functions of [`crate::sys`].
    pub fn handle(&self) -> *mut sys::ddp_optimizer {
        self.handle
    }

    pub(crate) fn of(&self, model: &Model) -> Result<()> {
        if self.model != model.handle() {
            return Err(not_of_this_model("optimizer"));
        }
        Ok(())
    }

    /// Update every parameter that was used in the last pass.
    pub fn step(&mut self, model: &mut Model) -> Result<()> {
        self.of(model)?;
        check(unsafe { sys::ddp_optimizer_step(self.handle, null_mut()) }).map_err(|error| model.explained(error))
    }

    pub fn set_rate(&mut self, rate: f64) -> Result<()> {
        check(unsafe { sys::ddp_optimizer_set_rate(self.handle, rate) })
    }

    pub fn rate(&self) -> Result<f64> {
        let mut found = 0.0;
        check(unsafe { sys::ddp_optimizer_get_rate(self.handle, &mut found) })?;
        Ok(found)
    }

    /// Steps taken so far.
    pub fn step_count(&self) -> Result<i64> {
        let mut found = 0;
        check(unsafe { sys::ddp_optimizer_get_step_count(self.handle, &mut found) })?;
        Ok(found)
    }

    /// Steps left out because of gradients that were not finite.
    pub fn skipped_count(&self) -> Result<i64> {
        let mut found = 0;
        check(unsafe { sys::ddp_optimizer_get_skipped_count(self.handle, &mut found) })?;
        Ok(found)
    }

    pub fn set_loss_scale(&mut self, options: LossScaleOptions) -> Result<()> {
        check(unsafe { sys::ddp_optimizer_set_loss_scale(self.handle, &options.0) })
    }

    /// What to multiply the next loss with.
    pub fn loss_scale(&self) -> Result<f64> {
        let mut found = 0.0;
        check(unsafe { sys::ddp_optimizer_get_loss_scale(self.handle, &mut found) })?;
        Ok(found)
    }

    /// Give one parameter its own weight decay and a factor on the learning rate.
    pub fn set_parameter_options<T>(&mut self, parameter: Parameter<T>, weight_decay: f64, rate_scale: f64) -> Result<()> {
        if parameter.model != self.model {
            return Err(not_of_this_model("parameter"));
        }
        check(unsafe { sys::ddp_optimizer_set_parameter_options(self.handle, parameter.index, weight_decay, rate_scale) })
    }
}

pub(crate) fn numbers(parameters: &[usize]) -> Vec<i32> {
    parameters.iter().map(|&index| i32::try_from(index).unwrap_or(-1)).collect()
}

/// For a call while `parameters` lives.
pub(crate) fn listing(mut options: OptimizerOptions, parameters: &[i32]) -> OptimizerOptions {
    options.0.parameters = parameters.as_ptr();
    options.0.parameter_count = parameters.len() as i64;
    options
}

impl Drop for Optimizer {
    fn drop(&mut self) {
        unsafe { sys::ddp_optimizer_destroy(self.handle) }
    }
}
