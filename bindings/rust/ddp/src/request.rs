// SPDX-License-Identifier: Apache-2.0
//! Collectives and messages that return at once, and end by themselves. A request owns its values until it has ended, so
//! nothing of the program can access them meanwhile.
use crate::error::{check, Result};
use crate::group::Shared;
use crate::tensor::{of_mut, Element};
use crate::{sys, Group, Reduce};
use std::ptr::{null, null_mut};
use std::rc::Rc;

/// A call that was posted, with its values. Dropped before it has ended, a receive for which nothing has come is withdrawn, and
/// any other request is waited for.
pub struct Request<T: Element> {
    handle: *mut sys::ddp_request,
    _input: Vec<T>, // what is only read
    output: Vec<T>,
    _group: Rc<Shared>,
}

impl<T: Element> Request<T> {
    fn new(
        group: &Group,
        mut input: Vec<T>,
        mut output: Vec<T>,
        post: impl FnOnce(*mut sys::ddp_group, &sys::ddp_tensor, &sys::ddp_tensor, *mut *mut sys::ddp_request) -> sys::ddp_status,
    ) -> Result<Request<T>> {
        let mut handle = null_mut();
        check(post(group.handle(), &of_mut(&mut input)?, &of_mut(&mut output)?, &mut handle))?;
        Ok(Request { handle, _input: input, output, _group: group.shared.clone() })
    }

    /// Has it ended well? Never waits.
    pub fn test(&self) -> Result<bool> {
        let mut done = 0;
        check(unsafe { sys::ddp_request_test(self.handle, &mut done) })?;
        Ok(done != 0)
    }

    /// Wait for `timeout_ms` at most. False: it has not ended.
    pub fn wait_for(&self, timeout_ms: u32) -> Result<bool> {
        let mut done = 0;
        check(unsafe { sys::ddp_request_wait(self.handle, timeout_ms.into(), &mut done) })?;
        Ok(done != 0)
    }

    /// Wait until it has ended, and return the result: of a send the values that were sent.
    pub fn wait(mut self) -> Result<Vec<T>> {
        check(unsafe { sys::ddp_request_wait(self.handle, -1, null_mut()) })?;
        Ok(std::mem::take(&mut self.output))
    }

    /// Of a receive that has ended: the rank that sent.
    pub fn source(&self) -> Option<usize> {
        usize::try_from(unsafe { sys::ddp_request_get_source(self.handle) }).ok()
    }
}

impl<T: Element> Drop for Request<T> {
    fn drop(&mut self) {
        unsafe { sys::ddp_request_destroy(self.handle) }
    }
}

/// Wait until one of the requests has ended, for `timeout_ms` at most; None: the time is over. The error is that of this request.
pub fn wait_any<T: Element>(requests: &[&Request<T>], timeout_ms: Option<u32>) -> Result<Option<usize>> {
    let ids: Vec<i64> = requests.iter().map(|each| unsafe { sys::ddp_request_get_id(each.handle) }).collect();
    let limit = timeout_ms.map_or(-1, i64::from);
    let mut index = -1;
    check(unsafe { sys::ddp_request_wait_any(ids.as_ptr(), ids.len() as i32, limit, &mut index) })?;
    Ok(usize::try_from(index).ok())
}

/// The posted calls. All ranks post the same collectives in the same order, whatever else they call meanwhile. The first one of a
/// group waits for all ranks, and is posted while no pass is open, unless the group was made with `requests`.
impl Group {
    /// Post `barrier`.
    pub fn post_barrier(&self) -> Result<Request<u8>> {
        Request::new(self, Vec::new(), Vec::new(), |group, _, _, out| unsafe { sys::ddp_group_post_barrier(group, out) })
    }

    /// Post `all_reduce`.
    pub fn post_all_reduce<T: Element>(&self, values: Vec<T>, op: Reduce) -> Result<Request<T>> {
        Request::new(self, Vec::new(), values, |group, _, values, out| unsafe {
            sys::ddp_group_post_all_reduce(group, values, op.into(), out, null_mut())
        })
    }

    /// Post `all_gather`: the values of all ranks, one rank after the other.
    pub fn post_all_gather<T: Element>(&self, values: Vec<T>) -> Result<Request<T>> {
        let all = self.for_all(&values);
        Request::new(self, values, all, |group, values, all, out| unsafe {
            sys::ddp_group_post_all_gather(group, values, all, out, null_mut())
        })
    }

    /// Post `reduce_scatter`: this rank's part of the sum.
    pub fn post_reduce_scatter<T: Element>(&self, values: Vec<T>, op: Reduce) -> Result<Request<T>> {
        let part = values[..values.len() / self.size()].to_vec();
        Request::new(self, values, part, |group, values, part, out| unsafe {
            sys::ddp_group_post_reduce_scatter(group, values, part, op.into(), out, null_mut())
        })
    }

    /// Post `broadcast`.
    pub fn post_broadcast<T: Element>(&self, values: Vec<T>, root: usize) -> Result<Request<T>> {
        Request::new(self, Vec::new(), values, |group, _, values, out| unsafe {
            sys::ddp_group_post_broadcast(group, values, root as i32, out, null_mut())
        })
    }

    /// Post `reduce`.
    pub fn post_reduce<T: Element>(&self, values: Vec<T>, op: Reduce, root: usize) -> Result<Request<T>> {
        Request::new(self, Vec::new(), values, |group, _, values, out| unsafe {
            sys::ddp_group_post_reduce(group, values, op.into(), root as i32, out, null_mut())
        })
    }

    /// Post `gather`: the values of all ranks on rank `root`; nothing on the others.
    pub fn post_gather<T: Element>(&self, values: Vec<T>, root: usize) -> Result<Request<T>> {
        let is_root = self.rank() == root;
        let all = if is_root { self.for_all(&values) } else { Vec::new() };
        Request::new(self, values, all, |group, values, all, out| unsafe {
            let all = if is_root { all as *const _ } else { null() };
            sys::ddp_group_post_gather(group, values, all, root as i32, out, null_mut())
        })
    }

    /// Post `scatter` into `part`; the ranks that are not `root` give no values.
    pub fn post_scatter<T: Element>(&self, values: Vec<T>, part: Vec<T>, root: usize) -> Result<Request<T>> {
        let is_root = self.rank() == root;
        Request::new(self, values, part, |group, values, part, out| unsafe {
            let values = if is_root { values as *const _ } else { null() };
            sys::ddp_group_post_scatter(group, values, part, root as i32, out, null_mut())
        })
    }

    /// Post `all_to_all` with equal parts.
    pub fn post_all_to_all<T: Element>(&self, values: Vec<T>) -> Result<Request<T>> {
        let taken = values.clone();
        Request::new(self, values, taken, |group, values, taken, out| unsafe {
            sys::ddp_group_post_all_to_all(group, values, taken, null(), null(), out, null_mut())
        })
    }

    /// Post `all_to_all_counts` into `output`.
    pub fn post_all_to_all_counts<T: Element>(
        &self,
        values: Vec<T>,
        output: Vec<T>,
        given: &[i64],
        taken: &[i64],
    ) -> Result<Request<T>> {
        self.check_counts(given)?;
        self.check_counts(taken)?;
        Request::new(self, values, output, |group, values, output, out| unsafe {
            sys::ddp_group_post_all_to_all(group, values, output, given.as_ptr(), taken.as_ptr(), out, null_mut())
        })
    }

    /// Post `all_gather_counts` into `output`.
    pub fn post_all_gather_counts<T: Element>(&self, values: Vec<T>, output: Vec<T>, counts: &[i64]) -> Result<Request<T>> {
        self.check_counts(counts)?;
        Request::new(self, values, output, |group, values, output, out| unsafe {
            sys::ddp_group_post_all_gather_counts(group, values, output, counts.as_ptr(), out, null_mut())
        })
    }

    /// Post `send`.
    pub fn post_send<T: Element>(&self, values: Vec<T>, peer: usize, tag: u32) -> Result<Request<T>> {
        Request::new(self, Vec::new(), values, |group, _, values, out| unsafe {
            sys::ddp_group_post_send(group, values, peer as i32, tag.into(), out, null_mut())
        })
    }

    /// Post `receive` from a rank, or from any, into these values; `source` tells then which rank sent.
    pub fn post_receive<T: Element>(&self, values: Vec<T>, source: Option<usize>, tag: u32) -> Result<Request<T>> {
        let from = source.map_or(sys::DDP_ANY_SOURCE, |rank| rank as i32);
        Request::new(self, Vec::new(), values, |group, _, values, out| unsafe {
            sys::ddp_group_post_receive(group, values, from, tag.into(), out, null_mut())
        })
    }

    fn for_all<T: Element>(&self, values: &[T]) -> Vec<T> {
        values.iter().copied().cycle().take(values.len() * self.size()).collect()
    }
}
