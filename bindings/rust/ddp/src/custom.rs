// SPDX-License-Identifier: Apache-2.0
//! An optimizer whose rule is a function of the program.
use crate::error::{c_string, drop_for_c, text_of_panic, Error, Result, Status};
use crate::tensor::Float;
use crate::{sys, CustomOptions, Model, Optimizer, OptimizerOptions};
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

type Function = dyn Fn(&mut Slice) -> std::result::Result<(), String> + Send + Sync;

pub(crate) struct Rule {
    function: Box<Function>,
    failure: Mutex<Option<String>>,
}

impl Rule {
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    fn call(&self, slice: &mut Slice) -> i32 {
        let failed = match catch_unwind(AssertUnwindSafe(|| (self.function)(slice))) {
            Ok(Ok(())) => return 0,
            Ok(Err(text)) => text,
            Err(panic) => text_of_panic(panic, "the rule panicked"),
        };
        self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(failed);
        1
    }
}

/// A stretch of a parameter that a rule is to change.
pub struct Slice<'a> {
    of_c: &'a sys::ddp_update_slice,
}

impl Slice<'_> {
    /// Values, gradients and the state arrays, in the order of their names. F32 parameters, and those of 16 bits, come as `f32`, F64 ones as
    /// `f64`; in the other type this is an error.
    #[allow(clippy::type_complexity)]
    pub fn parts<T: Float>(&mut self) -> std::result::Result<(&mut [T], &[T], Vec<&mut [T]>), String> {
        if self.of_c.dtype != T::DTYPE || self.of_c.device != sys::DDP_CPU {
            return Err("Slice::parts: the slice has another element type, or lies on a GPU".to_string());
        }
        let count = self.of_c.count as usize;
        // Each is an array of its own, and nobody else uses them during the call.
        unsafe {
            let states = self.of_c.state[..self.of_c.state_count as usize].iter();
            let states = states.map(|&state| std::slice::from_raw_parts_mut(state.cast::<T>(), count)).collect();
            let values = std::slice::from_raw_parts_mut(self.of_c.value.cast::<T>(), count);
            Ok((values, std::slice::from_raw_parts(self.of_c.grad.cast::<T>(), count), states))
        }
    }

    /// Are the elements `f64`?
    pub fn is_f64(&self) -> bool {
        self.of_c.dtype == sys::DDP_F64
    }

    /// Number of the parameter.
    pub fn index(&self) -> usize {
        self.of_c.index as usize
    }

    /// The first element's place in the flattened parameter.
    pub fn first(&self) -> usize {
        self.of_c.first as usize
    }

    /// Which step of this parameter this is, from 1.
    pub fn step(&self) -> i64 {
        self.of_c.step
    }

    pub fn rate(&self) -> f64 {
        self.of_c.rate
    }

    pub fn weight_decay(&self) -> f64 {
        self.of_c.weight_decay
    }
}

unsafe extern "C" fn call(user_data: *mut c_void, slice: *const sys::ddp_update_slice) -> i32 {
    (*user_data.cast::<Rule>()).call(&mut Slice { of_c: &*slice })
}

unsafe extern "C" fn release(user_data: *mut c_void) {
    drop_for_c(Arc::from_raw(user_data as *const Rule))
}

impl Optimizer {
    /// As [`Optimizer::custom`], for these parameters ([`crate::Parameter::index`]) alone.
    pub fn custom_of<F>(
        model: &mut Model,
        parameters: &[usize],
        states: &[&str],
        rule: CustomOptions,
        options: OptimizerOptions,
        function: F,
    ) -> Result<Optimizer>
    where
        F: Fn(&mut Slice) -> std::result::Result<(), String> + Send + Sync + 'static,
    {
        let list = crate::optimizer::numbers(parameters);
        Optimizer::custom(model, states, rule, crate::optimizer::listing(options, &list), function)
    }

    /// An optimizer with a rule of the program, which changes slices in place, the same on every rank. The library keeps, shards and saves
    /// an array of state for each of `states`. It calls the function on any of its threads, for several slices at the same time.
    pub fn custom<F>(model: &mut Model, states: &[&str], rule: CustomOptions, options: OptimizerOptions, function: F) -> Result<Optimizer>
    where
        F: Fn(&mut Slice) -> std::result::Result<(), String> + Send + Sync + 'static,
    {
        if states.len() > sys::DDP_MAX_STATES as usize {
            return Err(Error::new(Status::InvalidArgument, format!("{} states, at most {}", states.len(), sys::DDP_MAX_STATES)));
        }
        let names = c_string(&states.join(","))?;
        let names = if states.is_empty() { std::ptr::null() } else { names.as_ptr() };
        let kept = Arc::new(Rule { function: Box::new(function), failure: Mutex::new(None) });
        let given = Arc::into_raw(kept.clone()) as *mut c_void; // released by libddp, also if the call fails
        model.rules.push(Arc::downgrade(&kept));
        Optimizer::make(model, options, |(model, out)| unsafe {
            sys::ddp_optimizer_create_custom(model, &rule.0, &options.0, names.cast(), Some(call), given, Some(release), out)
        })
    }
}
