// SPDX-License-Identifier: Apache-2.0
//! Messages from one rank to one other, and collectives in which ranks give or get different parts. A group belongs to one
//! thread in Rust, so one thread sends and receives; `all_to_all` exchanges both ways at once.
use crate::error::{check, Error, Result, Status};
use crate::tensor::{of_mut, of_slice, Element};
use crate::{sys, Group, Reduce};
use std::ptr::{null, null_mut};

/// What lies in the place of a tensor that is not looked at.
fn no_tensor() -> *const sys::ddp_tensor {
    null()
}

impl Group {
    /// Send to rank `peer`, which receives with the same tag. A slice of up to 64 KiB is copied; a longer one waits for its receive.
    pub fn send<T: Element>(&self, values: &[T], peer: usize, tag: u32) -> Result<()> {
        check(unsafe { sys::ddp_group_send(self.handle(), &of_slice(values)?, peer as i32, tag.into(), null_mut()) })
    }

    /// Receive as many elements as `values` has from rank `source`.
    pub fn receive<T: Element>(&self, values: &mut [T], source: usize, tag: u32) -> Result<()> {
        self.receive_from(values, source as i32, tag).map(|_| ())
    }

    /// ... from any rank, which is returned. Which one that is may differ from run to run.
    pub fn receive_any<T: Element>(&self, values: &mut [T], tag: u32) -> Result<usize> {
        self.receive_from(values, sys::DDP_ANY_SOURCE, tag)
    }

    fn receive_from<T: Element>(&self, values: &mut [T], source: i32, tag: u32) -> Result<usize> {
        let mut from = -1;
        check(unsafe { sys::ddp_group_receive(self.handle(), &of_mut(values)?, source, tag.into(), &mut from, null_mut()) })?;
        Ok(from as usize)
    }

    /// Reduce to rank `root`, with the bits of `all_reduce`; what the others have then is undefined.
    pub fn reduce<T: Element>(&self, values: &mut [T], op: Reduce, root: usize) -> Result<()> {
        check(unsafe { sys::ddp_group_reduce(self.handle(), &of_mut(values)?, op.into(), root as i32, null_mut()) })
    }

    /// The values of all ranks, one rank after the other, on rank `root`; nothing on the others.
    pub fn gather<T: Element>(&self, values: &[T], root: usize) -> Result<Vec<T>> {
        if self.rank() != root {
            check(unsafe { sys::ddp_group_gather(self.handle(), &of_slice(values)?, no_tensor(), root as i32, null_mut()) })?;
            return Ok(Vec::new());
        }
        let mut all: Vec<T> = values.iter().copied().cycle().take(values.len() * self.size()).collect();
        check(unsafe { sys::ddp_group_gather(self.handle(), &of_slice(values)?, &of_mut(&mut all)?, root as i32, null_mut()) })?;
        Ok(all)
    }

    /// This rank's part of the values of rank `root`; the others give an empty slice.
    pub fn scatter<T: Element>(&self, values: &[T], part: &mut [T], root: usize) -> Result<()> {
        let given = of_slice(values)?;
        let input = if self.rank() == root { &given as *const _ } else { no_tensor() };
        check(unsafe { sys::ddp_group_scatter(self.handle(), input, &of_mut(part)?, root as i32, null_mut()) })
    }

    /// Give each rank an equal part of `input`, and get one of each.
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        check(unsafe {
            sys::ddp_group_all_to_all(self.handle(), &of_slice(input)?, &of_mut(output)?, null(), null(), null_mut())
        })
    }

    /// ... with the number of elements that each rank gets, and that come from each.
    pub fn all_to_all_counts<T: Element>(&self, input: &[T], output: &mut [T], given: &[i64], taken: &[i64]) -> Result<()> {
        self.check_counts(given)?;
        self.check_counts(taken)?;
        check(unsafe {
            sys::ddp_group_all_to_all(
                self.handle(),
                &of_slice(input)?,
                &of_mut(output)?,
                given.as_ptr(),
                taken.as_ptr(),
                null_mut(),
            )
        })
    }

    /// The values of all ranks, of which rank r gives counts[r].
    pub fn all_gather_counts<T: Element>(&self, values: &[T], output: &mut [T], counts: &[i64]) -> Result<()> {
        self.check_counts(counts)?;
        check(unsafe {
            sys::ddp_group_all_gather_counts(self.handle(), &of_slice(values)?, &of_mut(output)?, counts.as_ptr(), null_mut())
        })
    }

    pub(crate) fn check_counts(&self, counts: &[i64]) -> Result<()> {
        if counts.len() == self.size() {
            return Ok(());
        }
        let text = format!("{} counts are given; {} ranks need one each", counts.len(), self.size());
        Err(Error::new(Status::InvalidArgument, text))
    }
}
