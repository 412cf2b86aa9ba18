// SPDX-License-Identifier: Apache-2.0
//! Receivers of the library's log.
use crate::error::{check, drop_for_c, text, Result};
use crate::sys;
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Severity of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
}

const LEVELS: [LogLevel; 4] = [LogLevel::Debug, LogLevel::Info, LogLevel::Warning, LogLevel::Error];

/// A message of the log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogMessage {
    pub level: LogLevel,
    pub text: String,
    /// Of the error that it reports, as in C; 0: it reports none.
    pub code: i32,
    /// [`crate::Group::number`] of the group that it is about; 0: of none, or not known.
    pub group: i64,
    /// Of this process in that group.
    pub rank: Option<usize>,
}

type Function = Box<dyn Fn(LogMessage) + Send + Sync>;

/// Receives log messages beside the other receivers of the process, as long as it lives: from any thread, one at a time. The function must
/// not call this crate, and what it panics with is dropped.
#[must_use]
pub struct LogListener {
    number: i64,
    function: *mut Function,
}

// The function may be called from, and dropped on, any thread.
unsafe impl Send for LogListener {}
unsafe impl Sync for LogListener {}

impl LogListener {
    /// Of messages of this level and above.
    pub fn new(level: LogLevel, function: impl Fn(LogMessage) + Send + Sync + 'static) -> Result<LogListener> {
        let function: *mut Function = Box::into_raw(Box::new(Box::new(function)));
        let mut listener = LogListener { number: 0, function }; // drops the function if this fails
        check(unsafe { sys::ddp_add_log_listener(level as i32, Some(receive), function.cast(), &mut listener.number) })?;
        Ok(listener)
    }
}

impl Drop for LogListener {
    fn drop(&mut self) {
        unsafe {
            sys::ddp_remove_log_listener(self.number); // it is not running then, and is not called again
            drop_for_c(Box::from_raw(self.function));
        }
    }
}

unsafe extern "C" fn receive(function: *mut c_void, message: *const sys::ddp_log_message, words: *const sys::c_char) {
    let (function, message) = (&*function.cast::<Function>(), &*message);
    let told = LogMessage {
        level: LEVELS[message.level.clamp(0, 3) as usize],
        text: text(words).unwrap_or_default(),
        code: message.code,
        group: message.group,
        rank: usize::try_from(message.rank).ok(),
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| function(told))) {
        drop_for_c(panic);
    }
}
