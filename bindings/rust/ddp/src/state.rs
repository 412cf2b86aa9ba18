// SPDX-License-Identifier: Apache-2.0
//! Checkpoints: safetensors files that load at any number of ranks.
use crate::error::{c_string, check, sized, text_of_panic, Error, Result, Status};
use crate::{sys, Ema, Model, Optimizer};
use std::io::Write;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;

/// What a checkpoint holds: `State::new(&mut model).optimizer(&mut adam).step(12).save("model.safetensors")?`.
#[must_use]
pub struct State<'s> {
    model: &'s mut Model,
    optimizers: Vec<&'s mut Optimizer>,
    handles: Vec<*mut sys::ddp_optimizer>,
    ema: Option<&'s mut Ema>,
    epoch: i64,
    step: i64,
}

/// What a load found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub epoch: i64,
    pub step: i64,
}

impl<'s> State<'s> {
    pub fn new(model: &'s mut Model) -> State<'s> {
        State { model, optimizers: Vec::new(), handles: Vec::new(), ema: None, epoch: 0, step: 0 }
    }

    /// Once for each optimizer of the model; a load names them in the order of the save.
    pub fn optimizer(mut self, optimizer: &'s mut Optimizer) -> State<'s> {
        self.handles.push(optimizer.handle());
        self.optimizers.push(optimizer);
        self
    }

    pub fn ema(mut self, ema: &'s mut Ema) -> State<'s> {
        self.ema = Some(ema);
        self
    }

    pub fn epoch(mut self, epoch: i64) -> State<'s> {
        self.epoch = epoch;
        self
    }

    pub fn step(mut self, step: i64) -> State<'s> {
        self.step = step;
        self
    }

    fn in_c(&self) -> Result<sys::ddp_state> {
        for optimizer in &self.optimizers {
            optimizer.of(self.model)?;
        }
        if let Some(ema) = &self.ema {
            ema.of(self.model)?;
        }
        let mut state = unsafe { sized::<sys::ddp_state>() };
        check(unsafe { sys::ddp_state_init(&mut state, state.struct_size) })?;
        state.model = self.model.handle();
        if !self.handles.is_empty() {
            state.optimizers = self.handles.as_ptr() as *mut _;
            state.optimizer_count = self.handles.len() as i64;
        }
        state.ema = self.ema.as_ref().map_or(std::ptr::null_mut(), |ema| ema.handle());
        state.epoch = self.epoch;
        state.step = self.step;
        Ok(state)
    }

    /// Every rank calls, rank 0 writes; the file is there, whole and durable, or as it was.
    pub fn save(self, path: impl AsRef<Path>) -> Result<()> {
        let path = text_of(path.as_ref())?;
        check(unsafe { sys::ddp_state_save_file(&self.in_c()?, path.as_ptr().cast()) })
    }

    /// This rank alone writes what it has: the bytes are those of [`State::save`]. Refused in an open pass, and where the optimizer's state is
    /// sharded over several ranks. What the writer fails with is in the error's text.
    pub fn save_local<W: Write>(self, to: W) -> Result<()> {
        let state = self.in_c()?;
        let mut sink = Sink { to, failure: None };
        let user_data = (&mut sink as *mut Sink<W>).cast();
        let saved = check(unsafe { sys::ddp_state_save_local(&state, Some(write_to::<W>), user_data) });
        match sink.failure {
            Some(cause) => saved.map_err(|error| error.with_cause(&cause)),
            None => saved,
        }
    }

    /// Rank 0 reads, all ranks receive.
    pub fn load(self, path: impl AsRef<Path>) -> Result<Loaded> {
        let path = text_of(path.as_ref())?;
        self.loaded(|state, report| unsafe { sys::ddp_state_load_file(state, path.as_ptr().cast(), std::ptr::null(), report) })
    }

    /// Save into a folder, and keep the newest `keep` files of it.
    pub fn save_latest(self, folder: impl AsRef<Path>, keep: i64) -> Result<()> {
        let folder = text_of(folder.as_ref())?;
        check(unsafe { sys::ddp_state_save_latest(&self.in_c()?, folder.as_ptr().cast(), keep) })
    }

    /// Keep the state in the memory of the ranks: [`Model::recover`] goes back to it where it would need a checkpoint otherwise, with up to
    /// 65,536 bytes of the program's own, of rank 0. Of a group with the option `recoverable`.
    pub fn keep(self, own: &[u8]) -> Result<()> {
        let mut state = self.in_c()?;
        state.own = own.as_ptr().cast();
        state.own_bytes = own.len() as i64;
        check(unsafe { sys::ddp_state_keep(&state, 1, std::ptr::null_mut()) })
    }

    /// Load the newest valid file of a folder; `Status::NoCheckpoint` if it has none, as before a first start.
    pub fn load_latest(self, folder: impl AsRef<Path>) -> Result<Loaded> {
        let folder = text_of(folder.as_ref())?;
        self.loaded(|state, report| unsafe { sys::ddp_state_load_latest(state, folder.as_ptr().cast(), std::ptr::null(), report) })
    }

    fn loaded(self, load: impl FnOnce(&sys::ddp_state, &mut sys::ddp_load_report) -> sys::ddp_status) -> Result<Loaded> {
        self.model.closed()?;
        let mut report = unsafe { sized::<sys::ddp_load_report>() };
        check(load(&self.in_c()?, &mut report))?;
        Ok(Loaded { epoch: report.epoch, step: report.step })
    }
}

/// A writer as C calls it.
struct Sink<W> {
    to: W,
    failure: Option<String>,
}

impl<W: Write> Sink<W> {
    fn write(&mut self, data: &[u8]) -> i32 {
        let failure = match catch_unwind(AssertUnwindSafe(|| self.to.write_all(data))) {
            Ok(Ok(())) => return 0,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => text_of_panic(panic, "the writer panicked"),
        };
        self.failure = Some(failure);
        1
    }
}

unsafe extern "C" fn write_to<W: Write>(sink: *mut c_void, data: *const c_void, bytes: i64) -> i32 {
    let data = if bytes > 0 { std::slice::from_raw_parts(data.cast::<u8>(), bytes as usize) } else { &[] };
    (*sink.cast::<Sink<W>>()).write(data)
}

fn text_of(path: &Path) -> Result<std::ffi::CString> {
    c_string(path.to_str().ok_or_else(|| Error::new(Status::InvalidArgument, format!("the path {:?} is no text", path)))?)
}
