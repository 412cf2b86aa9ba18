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

/// What an error is about, as numbers. A list that is empty and `None` mean: it is not about that, or not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    /// Ranks of the group, ascending, at most 128.
    pub ranks: Vec<usize>,
    /// How many, also if there are more.
    pub rank_count: usize,
    /// Indices of parameters, ascending, at most 128.
    pub parameters: Vec<usize>,
    /// How many, also if there are more.
    pub parameter_count: usize,
    /// The collective call that failed, as C names it; of [`Status::DifferentCalls`] that of the first of the two ranks.
    pub call: Option<String>,
    /// Of [`Status::DifferentCalls`] that of the second.
    pub other_call: Option<String>,
    /// Where sizes differ, of the receiver or the lower rank, and of the sender or the other rank.
    pub bytes: Option<(usize, usize)>,
}

impl Details {
    /// Of this thread's last failure.
    fn last() -> Details {
        fn list(get: unsafe extern "C" fn(*mut i32, i32, *mut i32) -> sys::ddp_status) -> Vec<usize> {
            let (mut numbers, mut count) = ([0; sys::DDP_MAX_ERROR_LIST as usize], 0);
            unsafe { get(numbers.as_mut_ptr(), sys::DDP_MAX_ERROR_LIST, &mut count) };
            numbers.iter().take(count as usize).map(|number| *number as usize).collect()
        }
        let name = |call| text(unsafe { sys::ddp_call_name(call) }).filter(|name| !name.is_empty());
        let mut found = unsafe { sized::<sys::ddp_error_details>() };
        unsafe { sys::ddp_get_error_details(&mut found) };
        Details {
            ranks: list(sys::ddp_get_error_ranks),
            rank_count: found.rank_count as usize,
            parameters: list(sys::ddp_get_error_parameters),
            parameter_count: found.parameter_count as usize,
            call: name(found.call),
            other_call: name(found.other_call),
            bytes: usize::try_from(found.bytes_expected).ok().zip(usize::try_from(found.bytes_got).ok()),
        }
    }
}

/// A call failed. Shown, it is the library's sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    text: String,
    details: Box<Details>,
}

impl Error {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Error {
        Error { status, text: text.into(), details: Box::default() }
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

    /// What the error is about, as numbers.
    pub fn details(&self) -> &Details {
        &self.details
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
    let text = text(unsafe { sys::ddp_last_error() }).unwrap_or_default();
    Err(Error { status: Status::of(status), text, details: Box::new(Details::last()) })
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
