// SPDX-License-Identifier: Apache-2.0
//! The safe layer, with ranks that are threads of this process. What must come out is computed here, by hand.
use ddp::{
    Ema, Error, Group, GroupOptions, Model, ModelOptions, Optimizer, OptimizerOptions, PassKind, Reduce, Result, Sampler, SgdOptions,
    State, Status,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

mod common;
use common::{ranks, status};

#[test]
fn collectives_are_exact() {
    ranks("collectives", 3, |group| {
        let rank = group.rank();
        let mut counted: Vec<i64> = (0..5).map(|i| i * 10i64.pow(rank as u32)).collect();
        group.all_reduce(&mut counted, Reduce::Sum)?;
        assert_eq!(counted, [0, 111, 222, 333, 444]);
        assert_eq!(group.all_gather(&[rank as u8, 7])?, [0, 7, 1, 7, 2, 7]);
        let mut part = [0f64; 2];
        group.reduce_scatter(&mut [1.5f64, 2.0, 3.0, 4.0, 5.0, 6.0], &mut part, Reduce::Sum)?;
        assert_eq!(part, [[4.5, 6.0], [9.0, 12.0], [15.0, 18.0]][rank]);
        let mut text = if rank == 1 { *b"rank one" } else { [0; 8] };
        group.broadcast(&mut text, 1)?;
        assert_eq!(&text, b"rank one");
        let mut numbers = [rank as f64, 1.0];
        group.reduce_metrics(&mut numbers, Reduce::Max)?;
        assert_eq!(numbers, [2.0, 1.0]);
        let pair = group.split(if rank == 2 { None } else { Some(0) }, -(rank as i32))?;
        assert_eq!(pair.map(|pair| (pair.rank(), pair.size())), [Some((1, 2)), Some((0, 2)), None][rank]);
        assert_eq!(group.parts()?, ddp::Parts { total: 3, mine: rank..rank + 1 });
        Ok(())
    });
}

#[test]
fn what_is_posted_ends_by_itself() {
    ranks("posted", 3, |group| {
        let (rank, size) = (group.rank(), group.size());
        let sum = group.post_all_reduce(vec![rank as i64, 1], Reduce::Sum)?;
        let all = group.post_all_gather(vec![rank as u8, 7])?;
        let part = group.post_reduce_scatter(vec![0i32, 1, 2], Reduce::Sum)?;
        let told = group.post_broadcast(vec![rank as i32], 2)?;
        let most = group.post_reduce(vec![rank as i32], Reduce::Max, 0)?;
        let gathered = group.post_gather(vec![rank as i32], 1)?;
        let scattered = group.post_scatter(if rank == 0 { vec![4i32, 5, 6] } else { vec![] }, vec![0], 0)?;
        let swapped = group.post_all_to_all(vec![rank as i32; 3])?;
        let some = group.post_all_to_all_counts(vec![rank as i32; 3], vec![0; 3 * rank], &[0, 1, 2], &[rank as i64; 3])?;
        let counted = group.post_all_gather_counts(vec![rank as i32; rank + 1], vec![0; 6], &[1, 2, 3])?;
        let end = group.post_barrier()?;
        while !end.test()? {}
        assert!(sum.test()? && sum.wait_for(0)?);
        assert_eq!(counted.wait()?, [0, 1, 1, 2, 2, 2]);
        assert_eq!(some.wait()?, [vec![0; 0], vec![0, 1, 2], vec![0, 0, 1, 1, 2, 2]][rank]);
        assert_eq!(swapped.wait()?, [0, 1, 2]);
        assert_eq!(scattered.wait()?, [4 + rank as i32]);
        assert_eq!(gathered.wait()?, if rank == 1 { vec![0, 1, 2] } else { vec![] });
        let most = most.wait()?;
        assert!(rank != 0 || most == [2]); // undefined on the others
        assert_eq!((told.wait()?, part.wait()?), (vec![2], vec![3 * rank as i32]));
        assert_eq!((all.wait()?, sum.wait()?), (vec![0, 7, 1, 7, 2, 7], vec![3, 3]));
        let (after, before) = ((rank + 1) % size, (rank + size - 1) % size);
        let received = group.post_receive(vec![0i64; 2], None, 5)?;
        assert_eq!(ddp::wait_any(&[&received], Some(10))?, None);
        group.barrier()?;
        let sent = group.post_send(vec![rank as i64; 2], after, 5)?;
        assert_eq!(ddp::wait_any(&[&received], None)?, Some(0));
        assert_eq!(received.source(), Some(before));
        assert_eq!((received.wait()?, sent.wait()?), (vec![before as i64; 2], vec![rank as i64; 2]));
        drop(group.post_receive(vec![0u8], Some(before), 6)?); // withdrawn
        group.barrier()
    });
}

#[test]
fn messages_go_from_one_rank_to_another() {
    ranks("messages", 3, |group| {
        let (rank, size) = (group.rank(), group.size());
        if rank > 0 {
            group.send(&[rank as i64; 3], 0, 7)?;
        }
        for from in (1..size).filter(|_| rank == 0) {
            let mut got = [0i64; 3];
            group.receive(&mut got, from, 7)?;
            assert_eq!(got, [from as i64; 3]);
        }
        if rank > 0 {
            group.send(&[rank as u8], 0, 8)?;
        }
        let mut seen = [false; 3];
        for _ in (1..size).filter(|_| rank == 0) {
            let mut got = [0u8];
            seen[group.receive_any(&mut got, 8)?] = true;
        }
        assert_eq!(seen, [false, rank == 0, rank == 0]);
        assert_eq!(group.gather(&[rank as i32], 2)?, if rank == 2 { vec![0, 1, 2] } else { vec![] });
        let mut part = [0i32];
        group.scatter(if rank == 1 { &[5, 6, 7] } else { &[][..] }, &mut part, 1)?;
        assert_eq!(part, [5 + rank as i32]);
        let mine: Vec<i32> = (0..3).map(|other| 10 * rank as i32 + other).collect();
        let mut swapped = [0; 3];
        group.all_to_all(&mine, &mut swapped)?;
        assert_eq!(swapped, [rank as i32, 10 + rank as i32, 20 + rank as i32]);
        let mut some = vec![0; 3 * rank];
        group.all_to_all_counts(&mine, &mut some, &[0, 1, 2], &[rank as i64; 3])?;
        assert_eq!(some, [vec![], vec![0, 10, 20], vec![1, 2, 11, 12, 21, 22]][rank]);
        let mut joined = [0; 6];
        group.all_gather_counts(&mine[..rank + 1], &mut joined, &[1, 2, 3])?;
        assert_eq!(joined, [0, 10, 11, 20, 21, 22]);
        assert!(group.all_gather_counts(&mine[..1], &mut joined, &[1]).is_err());
        let mut product = [rank as f64 + 2.0];
        group.reduce(&mut product, Reduce::Product, 0)?;
        assert!(rank != 0 || product == [24.0]);
        Ok(())
    });
}

#[test]
fn samples_are_dealt_out_once() {
    let mut all: Vec<usize> = Vec::new();
    for rank in 0..4 {
        all.extend(Sampler::of(20).unwrap().part(rank, 4).indices(3).unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<_>>());
}

/// w begins at [4, 4] on rank 0; each step takes 0.5 * the mean of 0 and 2 (ranks 0 and 1) away.
fn train(group: &Group, model: &mut Model, within: bool) -> Result<(ddp::Parameter<f32>, Optimizer)> {
    let w = model.add_parameter("w", vec![4.0 - group.rank() as f32; 2], &[2])?;
    assert_eq!(status(model.grad(w)), Status::InvalidState); // the library makes it at commit
    model.commit()?;
    assert_eq!(model.value(w)?, [4.0, 4.0]);
    let mut sgd = Optimizer::sgd(model, SgdOptions::new().rate(0.5), OptimizerOptions::new().in_backward(within))?;
    for step in 0..3 {
        let mut pass = model.backward(PassKind::Reduce)?;
        let (values, mut grads) = pass.split();
        assert_eq!(values.get(w)?, [4.0 - 0.5 * step as f32; 2]);
        grads.get(w)?.fill(2.0 * group.rank() as f32);
        pass.ready(w)?;
        let (values, mut grads) = pass.split();
        assert_eq!(grads.get(w).unwrap_err().status(), Status::InvalidState);
        assert_eq!(values.get(w).is_err(), within);
        pass.end()?;
        sgd.step(model)?;
    }
    assert_eq!(model.value(w)?, [2.5, 2.5]);
    Ok((w, sgd))
}

#[test]
fn training_is_exact() {
    ranks("training", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let (w, _sgd) = train(&group, &mut model, false)?;
        assert_eq!(model.grad(w)?, [1.0, 1.0]);
        assert_eq!(model.stats()?.passes, 3);
        model.check_replicas()
    });
}

#[test]
fn values_cannot_be_read_while_they_are_updated() {
    ranks("within", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new().own_values(true))?;
        let w = model.add_parameter("w", vec![1f32], &[1])?;
        model.commit()?;
        let _sgd = Optimizer::sgd(&mut model, SgdOptions::new(), OptimizerOptions::new().in_backward(true))?;
        let mut pass = model.backward(PassKind::Reduce)?;
        assert_eq!(pass.split().0.get(w)?, [1.0]);
        pass.ready(w)?;
        assert_eq!(status(pass.split().0.get(w)), Status::InvalidState);
        pass.end()
    });
    ranks("within2", 2, |group| train(&group, &mut Model::new(&group, ModelOptions::new())?, true).map(|_| ()));
}

#[test]
fn a_pass_that_is_dropped_is_abandoned() {
    ranks("dropped", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let w = model.add_parameter("w", vec![0f64; 3], &[3])?;
        model.commit()?;
        let mut pass = model.backward(PassKind::Reduce)?;
        if group.rank() == 0 {
            drop(pass); // as `?` or a panic would
        } else {
            pass.ready(w)?;
            let error = pass.end().unwrap_err();
            assert_eq!(error.status(), Status::InvalidState);
            assert!(error.text().contains("the pass was dropped without an end"), "{}", error);
        }
        model.zero_grad()?;
        let mut pass = model.backward(PassKind::Reduce)?; // the group goes on
        pass.ready(w)?;
        pass.end()
    });
}

#[test]
fn memory_of_a_forgotten_pass_cannot_be_reached() {
    ranks("forgotten", 1, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let w = model.add_parameter("w", vec![0f32; 3], &[3])?;
        model.commit()?;
        std::mem::forget(model.backward(PassKind::Reduce)?);
        assert_eq!(status(model.grad(w)), Status::InvalidState);
        assert_eq!(status(model.value_mut(w)), Status::InvalidState);
        assert_eq!(status(model.backward(PassKind::Reduce).map(|_| ())), Status::InvalidState);
        Ok(())
    });
}

#[test]
fn things_of_another_model_are_refused() {
    ranks("others", 1, |group| {
        let (mut one, mut other) = (Model::new(&group, ModelOptions::new())?, Model::new(&group, ModelOptions::new())?);
        let w = one.add_parameter("w", vec![0f32], &[1])?;
        let b = one.add_buffer("b", vec![1i64, 2], &[2])?;
        other.add_parameter("w", vec![0f32], &[1])?;
        let mut sgd = Optimizer::sgd(&mut one, SgdOptions::new(), OptimizerOptions::new())?;
        let mut ema = Ema::new(&mut one, &[0.5])?;
        one.commit()?;
        other.commit()?;
        assert_eq!(one.buffer(&b)?, [1, 2]);
        assert_eq!(status(other.buffer(&b)), Status::InvalidArgument);
        assert_eq!(status(other.value(w)), Status::InvalidArgument);
        assert_eq!(status(sgd.step(&mut other)), Status::InvalidArgument);
        assert_eq!(status(ema.update(&mut other)), Status::InvalidArgument);
        assert_eq!(status(State::new(&mut other).optimizer(&mut sgd).save("/nowhere")), Status::InvalidArgument);
        assert_eq!(status(one.recover(Default::default())), Status::InvalidState); // two models
        Ok(())
    });
}

#[test]
fn errors_have_a_status_and_a_sentence() {
    let error: Error = Group::meet("nowhere://x", GroupOptions::new()).map(|_| ()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.to_string().contains("nowhere"), "{}", error);
    assert_eq!(status(Group::meet("a\0b", GroupOptions::new()).map(|_| ())), Status::InvalidArgument);
    ranks("errors", 1, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        assert_eq!(status(model.add_parameter("w", vec![0f32; 5], &[2, 3])), Status::InvalidArgument);
        assert_eq!(status(State::new(&mut model).load("/nowhere/model")), Status::Io);
        model.add_parameter("w", vec![0f32; 6], &[2, 3])?;
        assert_eq!(status(model.add_parameter("w", vec![0f32; 6], &[6])), Status::InvalidArgument);
        model.commit()?;
        assert_eq!(status(State::new(&mut model).keep(b"own")), Status::InvalidState); // the group cannot recover
        Ok(())
    });
}

#[test]
fn another_thread_ends_what_waits() {
    ranks("abort", 2, |group| {
        if group.rank() == 1 {
            std::thread::sleep(std::time::Duration::from_millis(400)); // does not come
            return Ok(());
        }
        let aborter = group.aborter();
        let other = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            aborter.abort("enough").unwrap();
            aborter
        });
        let error = group.barrier().unwrap_err();
        assert!(error.status() == Status::Aborted && error.text().contains("enough") && error.breaks_group(), "{}", error);
        drop(group);
        other.join().unwrap().abort("nobody is there")
    });
}

#[test]
fn ranks_in_different_calls() {
    ranks("calls", 2, |group| {
        let result = if group.rank() == 0 { group.barrier() } else { group.reduce_metrics(&mut [1.0], ddp::Reduce::Sum) };
        let error = result.unwrap_err();
        assert!(error.status() == Status::DifferentCalls && error.breaks_group(), "{}", error);
        assert_eq!(group.status().unwrap_err().status(), Status::DifferentCalls);
        Ok(())
    });
}

#[test]
fn a_rule_of_the_program() {
    let released = Arc::new(AtomicUsize::new(0));
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    ranks("rule", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let w = model.add_parameter("w", vec![1f32; 100], &[100])?;
        model.commit()?;
        let counts = Counts(released.clone());
        let rule = ddp::CustomOptions::new().rate(0.25);
        let mut optimizer = Optimizer::custom(&mut model, &["steps"], rule, OptimizerOptions::new().shard(true), move |slice| {
            let _kept = &counts;
            let (rate, step) = (slice.rate() as f32, slice.step());
            assert!(step < 4, "no step {}", step);
            let (values, grads, mut states) = slice.parts::<f32>()?;
            for ((value, grad), steps) in values.iter_mut().zip(grads).zip(states[0].iter_mut()) {
                *steps += 1.0;
                *value -= rate * grad * *steps;
            }
            Ok(())
        })?;
        for step in 1..=4 {
            let mut pass = model.backward(PassKind::Reduce)?;
            pass.split().1.get(w)?.fill(4.0 * group.rank() as f32);
            pass.ready(w)?;
            pass.end()?;
            let made = optimizer.step(&mut model);
            if step < 4 {
                made?;
            } else {
                let error = made.unwrap_err();
                assert_eq!(error.status(), Status::Callback);
                assert!(error.text().contains("rank 1"), "{}", error); // who has the slice
                assert_eq!(error.text().contains("no step 4"), group.rank() == 1, "{}", error);
            }
        }
        assert!(model.value(w)?.iter().all(|&value| value == 1.0 - 0.25 * 2.0 * 6.0)); // 1 + 2 + 3 steps
        Ok(())
    });
    assert_eq!(released.load(Ordering::SeqCst), 2);
}

#[test]
fn checkpoints_come_back() {
    let folder = std::env::temp_dir().join(format!("ddp-rust-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    ranks("state", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let (w, mut sgd) = train(&group, &mut model, false)?;
        model.set_metadata("best", Some("step 3"))?;
        assert_eq!(status(State::new(&mut model).load_latest(&folder)), Status::NoCheckpoint);
        State::new(&mut model).optimizer(&mut sgd).epoch(2).step(3).save_latest(&folder, 2)?;
        model.value_mut(w)?.fill(-1.0);
        model.set_metadata("best", None)?;
        sgd.set_rate(7.0)?;
        let loaded = State::new(&mut model).optimizer(&mut sgd).load_latest(&folder)?;
        assert_eq!(loaded, ddp::Loaded { epoch: 2, step: 3 });
        assert_eq!((model.value(w)?, sgd.rate()?, sgd.step_count()?), (&[2.5f32, 2.5][..], 0.5, 3));
        assert_eq!(model.metadata("best")?.as_deref(), Some("step 3"));
        assert_eq!(model.metadata("worst")?, None);
        Ok(())
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        assert!(self.0 > 0, "nobody expected so much");
        self.0 -= 1;
        Err(std::io::Error::new(std::io::ErrorKind::Other, format!("no room for {} bytes", data.len())))
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn one_rank_saves_alone() {
    let path = std::env::temp_dir().join(format!("ddp-rust-{}.safetensors", std::process::id()));
    ranks("alone", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let (w, mut sgd) = train(&group, &mut model, false)?;
        if group.rank() == 1 {
            let mut saved = Vec::new();
            State::new(&mut model).optimizer(&mut sgd).epoch(2).step(3).save_local(&mut saved)?; // rank 0 is elsewhere
            std::fs::write(&path, &saved).unwrap();
            for (room, word) in [(1, "no room for "), (0, "nobody expected so much")] {
                let error = State::new(&mut model).save_local(Full(room)).unwrap_err();
                assert_eq!(error.status(), Status::Callback);
                assert!(error.text().contains(word), "{}", error);
            }
        }
        group.barrier()?;
        model.value_mut(w)?.fill(-1.0);
        let loaded = State::new(&mut model).optimizer(&mut sgd).load(&path)?;
        assert_eq!(loaded, ddp::Loaded { epoch: 2, step: 3 });
        assert_eq!((model.value(w)?, sgd.step_count()?), (&[2.5f32, 2.5][..], 3));
        drop(sgd);
        let momentum = SgdOptions::new().momentum(0.9);
        let mut sharded = Optimizer::sgd(&mut model, momentum, OptimizerOptions::new().shard(true))?;
        let refused = State::new(&mut model).optimizer(&mut sharded).save_local(std::io::sink());
        assert_eq!(status(refused), Status::InvalidState);
        Ok(())
    });
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn numbers_of_the_program_are_checked() {
    ranks("log", 2, |group| {
        group.log_metric("rust/loss", 0.5)?;
        let error = group.log_metric("my loss", 0.5).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.text().contains("name is \"my loss\""), "{}", error);
        Ok(())
    });
}

/// Objects stay on their thread; what ends a group from elsewhere does not.
#[test]
fn what_may_go_to_other_threads() {
    fn sent<T: Send + Sync>() {}
    sent::<ddp::Aborter>();
    sent::<Error>();
    // That a Group and a Model are not, is a doc-test of the crate's first page.
}
