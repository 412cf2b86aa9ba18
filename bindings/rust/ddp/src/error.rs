// SPDX-License-Identifier: Apache-2.0
//! Statuses and texts of C as a `Result`.
use crate::sys;
use std::any::Any;
use std::ffi::{CStr, CString};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What went wrong, for a program to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    InvalidArgument,
    InvalidState,
    NotSupported,
    OutOfMemory,
    TimedOut,
    PeerFailed,
    Aborted,
    Mismatch,
    Io,
    Callback,
    Internal,
    TooFewRanks,
    Fenced,
    NoCheckpoint,
    NoMajority,
    DifferentCalls,
    /// Of a library that is newer than this crate.
    Other(i32),
}

impl Status {
    fn of(code: sys::ddp_status) -> Status {
        match code {
            sys::DDP_ERROR_INVALID_ARGUMENT => Status::InvalidArgument,
            sys::DDP_ERROR_INVALID_STATE => Status::InvalidState,
            sys::DDP_ERROR_NOT_SUPPORTED => Status::NotSupported,
            sys::DDP_ERROR_OUT_OF_MEMORY => Status::OutOfMemory,
            sys::DDP_ERROR_TIMED_OUT => Status::TimedOut,
            sys::DDP_ERROR_PEER_FAILED => Status::PeerFailed,
            sys::DDP_ERROR_ABORTED => Status::Aborted,
            sys::DDP_ERROR_MISMATCH => Status::Mismatch,
            sys::DDP_ERROR_IO => Status::Io,
            sys::DDP_ERROR_CALLBACK => Status::Callback,
            sys::DDP_ERROR_INTERNAL => Status::Internal,
            sys::DDP_ERROR_TOO_FEW_RANKS => Status::TooFewRanks,
            sys::DDP_ERROR_FENCED => Status::Fenced,
            sys::DDP_ERROR_NO_CHECKPOINT => Status::NoCheckpoint,
            sys::DDP_ERROR_NO_MAJORITY => Status::NoMajority,
            sys::DDP_ERROR_DIFFERENT_CALLS => Status::DifferentCalls,
            other => Status::Other(other),
        }
    }
}

/// A call failed. Shown, it is the library's sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    text: String,
}

impl Error {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Error {
        Error { status, text: text.into() }
    }

    pub(crate) fn with_cause(mut self, cause: &str) -> Error {
        self.text = format!("{}: {}", self.text, cause);
        self
    }

    pub fn status(&self) -> Status {
        self.status
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Does each error with this status break the group of the call, so that later calls fail too until
    /// [`crate::Model::recover`]? Another error (no memory, a defect) may have broken it all the same:
    /// [`crate::Group::status`] says that after any error.
    pub fn breaks_group(&self) -> bool {
        matches!(
            self.status,
            Status::TimedOut | Status::PeerFailed | Status::Aborted | Status::DifferentCalls
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

/// What a call of C answered. The text belongs to this thread, and no other call comes between.
pub(crate) fn check(status: sys::ddp_status) -> Result<()> {
    if status == sys::DDP_OK {
        return Ok(());
    }
    Err(Error::new(Status::of(status), text(unsafe { sys::ddp_last_error() }).unwrap_or_default()))
}

/// A text of C, copied; `None` for NULL.
pub(crate) fn text(of_c: *const sys::c_char) -> Option<String> {
    if of_c.is_null() {
        return None;
    }
    Some(unsafe { CStr::from_ptr(of_c.cast()) }.to_string_lossy().into_owned())
}

/// What a panic in a function of the program said.
pub(crate) fn text_of_panic(panic: Box<dyn Any + Send>, otherwise: &str) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or(otherwise).to_string();
    drop_for_c(panic);
    text
}

/// Drops what is the program's inside a call from C, over which a panic of that drop must not unwind.
pub(crate) fn drop_for_c<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(panic); // its own drop may panic again
    }
}

/// A text for C.
pub(crate) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Status::InvalidArgument, format!("the text {:?} has a NUL in it", text)))
}

/// A struct that a call fills: zeros and its own size. Of C structs of numbers and pointers only.
pub(crate) unsafe fn sized<T: Copy>() -> T {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    *value.as_mut_ptr().cast::<i64>() = std::mem::size_of::<T>() as i64;
    value.assume_init()
}
