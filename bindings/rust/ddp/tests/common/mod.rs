// SPDX-License-Identifier: Apache-2.0
//! What the tests share.
use ddp::{Group, GroupOptions, Result, Status};

/// Runs `rank` on as many threads as there are ranks, in a group of its own.
pub fn ranks(name: &str, size: usize, rank: impl Fn(Group) -> Result<()> + Sync) {
    std::thread::scope(|scope| {
        for number in 0..size {
            let rank = &rank;
            scope.spawn(move || {
                let options = GroupOptions::new().rank(number as i32).world_size(size as i32).timeout_ms(20_000);
                rank(Group::meet(&format!("local://{}", name), options).unwrap()).unwrap();
            });
        }
    });
}

pub fn status<T: std::fmt::Debug>(result: Result<T>) -> Status {
    result.unwrap_err().status()
}
