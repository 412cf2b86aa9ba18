// SPDX-License-Identifier: Apache-2.0
//! Which samples are mine.
use crate::error::{check, Result};
use crate::{sys, Group};

/// A data set's partition over the ranks: a pure function of its fields.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    of_c: sys::ddp_sampler,
}

impl Sampler {
    /// `samples` dealt out to the ranks of a group.
    pub fn new(group: &Group, samples: usize) -> Result<Sampler> {
        Ok(Sampler::of(samples)?.part(group.rank(), group.size()))
    }

    /// `samples` for one rank alone.
    pub fn of(samples: usize) -> Result<Sampler> {
        let mut of_c = unsafe { crate::error::sized::<sys::ddp_sampler>() };
        check(unsafe { sys::ddp_sampler_init(&mut of_c, of_c.struct_size) })?;
        of_c.dataset_size = samples as i64;
        Ok(Sampler { of_c })
    }

    /// Part `rank` of `size`.
    pub fn part(mut self, rank: usize, size: usize) -> Sampler {
        self.of_c.rank = rank as i32;
        self.of_c.size = size as i32;
        self
    }

    pub fn seed(mut self, seed: i64) -> Sampler {
        self.of_c.seed = seed;
        self
    }

    pub fn shuffle(mut self, shuffle: bool) -> Sampler {
        self.of_c.shuffle = shuffle.into();
        self
    }

    /// Drop the tail in the place of padding it.
    pub fn drop_last(mut self, drop_last: bool) -> Sampler {
        self.of_c.drop_last = drop_last.into();
        self
    }

    /// Samples of the epoch that all ranks together have seen before the number of ranks changed.
    pub fn seen(mut self, seen: i64) -> Sampler {
        self.of_c.seen = seen;
        self
    }

    /// How many indices each rank gets per epoch.
    pub fn count(&self) -> Result<usize> {
        let mut found = 0;
        check(unsafe { sys::ddp_sampler_get_count(&self.of_c, &mut found) })?;
        Ok(found as usize)
    }

    /// This rank's share of an epoch. Cut into batches: `indices(epoch)?.chunks(64)`.
    pub fn indices(&self, epoch: i64) -> Result<Vec<usize>> {
        let mut found = vec![0i64; self.count()?];
        check(unsafe { sys::ddp_sampler_fill(&self.of_c, epoch, 0, found.len() as i64, found.as_mut_ptr()) })?;
        Ok(found.into_iter().map(|index| index as usize).collect())
    }
}
