// SPDX-License-Identifier: Apache-2.0
//! Gradients that are marked by ranges, or move; and what panics where C calls.
use ddp::{Model, ModelOptions, Optimizer, OptimizerOptions, PassKind, Status};

mod common;
use common::{ranks, status};

#[test]
fn a_gradient_is_marked_by_ranges() {
    ranks("ranges", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let w = model.add_parameter("w", vec![0f32; 6], &[2, 3])?;
        model.commit()?;
        for _ in 0..2 {
            let mut pass = model.backward(PassKind::Reduce)?;
            pass.split().1.range(w, 2..6)?.fill(2.0 * group.rank() as f32);
            pass.range_ready(w, 2..6)?;
            assert_eq!(status(pass.split().1.get(w)), Status::InvalidState);
            assert_eq!(status(pass.split().1.range(w, 0..3)), Status::InvalidState);
            assert_eq!(status(pass.split().1.range(w, 0..7)), Status::InvalidArgument);
            assert_eq!(status(pass.range_ready(w, 1..3)), Status::InvalidState);
            assert_eq!(status(pass.range_ready(w, 0..0)), Status::InvalidArgument);
            pass.split().1.range(w, 0..2)?.copy_from_slice(&[4.0, 6.0]);
            pass.range_ready(w, 0..2)?;
            pass.end()?;
            assert_eq!(model.grad(w)?, [4.0, 6.0, 1.0, 1.0, 1.0, 1.0]);
        }
        Ok(())
    });
}

#[test]
fn gradients_move() {
    ranks("move", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let w = model.add_parameter_with_grad("w", vec![0f32; 3], vec![0f32; 3], &[3])?;
        let b = model.add_parameter("b", vec![0f32; 2], &[2])?;
        assert_eq!(status(model.add_parameter_with_grad("w", vec![0f32; 3], vec![0f32; 3], &[3])), Status::InvalidArgument);
        assert_eq!(status(model.add_parameter_with_grad("x", vec![0f32; 3], vec![0f32; 2], &[3])), Status::InvalidArgument);
        model.commit()?;
        for step in 1..=20 {
            let mut pass = model.backward(PassKind::Reduce)?;
            assert_eq!(status(pass.set_grad(w, vec![0f32; 4])), Status::InvalidArgument);
            assert_eq!(status(pass.set_grad(b, vec![0f32; 2])), Status::InvalidState); // the library's
            pass.set_grad(w, vec![(2 * group.rank() * step) as f32; 3])?;
            pass.ready(w)?;
            assert_eq!(status(pass.set_grad(w, vec![0f32; 3])), Status::InvalidState);
            pass.split().1.get(b)?.fill(1.0);
            pass.ready(b)?;
            pass.end()?;
            assert_eq!(model.grad(w)?, [step as f32; 3]);
        }
        Ok(())
    });
}

#[test]
fn gradients_come_later() {
    ranks("later", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let w = model.add_parameter_without_grad("w", vec![0f32; 3], &[3])?;
        model.commit()?;
        for step in 1..=5 {
            let mut pass = model.backward(PassKind::Reduce)?;
            let error = pass.ready(w).unwrap_err();
            assert_eq!((error.status(), error.details().parameters.clone()), (Status::InvalidState, vec![0]));
            assert!(error.text().contains("\"w\""));
            assert_eq!(status(pass.set_grad(w, vec![0f32; 4])), Status::InvalidArgument);
            pass.set_grad(w, vec![(2 * group.rank() * step) as f32; 3])?;
            pass.ready(w)?;
            pass.end()?;
            assert_eq!(model.grad(w)?, [step as f32; 3]);
            model.drop_grad(w)?;
            assert_eq!(status(model.grad(w)), Status::InvalidState);
        }
        Ok(())
    });
}

#[test]
fn errors_have_numbers_and_listeners_are_told_of_the_group() {
    use std::sync::{Arc, Mutex};
    let heard = Arc::new(Mutex::new(Vec::new()));
    let to = heard.clone();
    let listener = ddp::LogListener::new(ddp::LogLevel::Warning, move |message| to.lock().unwrap().push(message)).unwrap();
    ranks("numbers", 2, |group| {
        let mut empty = Model::new(&group, ModelOptions::new())?;
        empty.commit()?; // which warns
        let mut model = Model::new(&group, ModelOptions::new())?;
        let w = model.add_parameter("w", vec![0f32; 3], &[3])?;
        model.commit()?;
        let mut pass = model.backward(PassKind::Reduce)?;
        if group.rank() == 0 {
            pass.ready(w)?;
        }
        let error = pass.end().unwrap_err();
        assert_eq!((error.details().ranks.clone(), error.details().parameters.clone()), (vec![1], vec![0]));
        assert_eq!(error.details().call.as_deref(), Some("ddp_model_end_backward"));
        assert!(group.number() > 0);
        Ok(())
    });
    drop(listener);
    let heard = heard.lock().unwrap();
    let warned = heard.iter().find(|message| message.text.contains("no parameters")).unwrap();
    assert_eq!((warned.level, warned.code), (ddp::LogLevel::Warning, 0));
    assert!(warned.rank < Some(2) && warned.group > 0);
}

#[test]
fn a_step_needs_gradients_that_were_reduced() {
    ranks("without-pass", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let w = model.add_parameter("w", vec![0f32; 3], &[3])?;
        model.commit()?;
        let mut optimizer = Optimizer::sgd(&mut model, ddp::SgdOptions::new().rate(1.0), OptimizerOptions::new())?;
        assert_eq!(status(optimizer.step(&mut model)), Status::InvalidState);
        model.grad_mut(w)?.fill(2.0); // the same on both ranks
        model.mark_reduced()?;
        optimizer.step(&mut model)?;
        assert_eq!(model.value(w)?, [-2.0; 3]);
        assert_eq!(status(optimizer.step(&mut model)), Status::InvalidState);
        Ok(())
    });
}

#[test]
fn a_panic_that_panics_again_when_it_is_dropped_stays_in_the_call() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any("dropped");
        }
    }
    ranks("bomb", 1, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let w = model.add_parameter("w", vec![1f32], &[1])?;
        model.commit()?;
        let owned = Bomb;
        let mut rule = Optimizer::custom(&mut model, &[], ddp::CustomOptions::new(), OptimizerOptions::new(), move |_| {
            let _owned = &owned;
            std::panic::panic_any(Bomb)
        })?;
        let mut pass = model.backward(PassKind::Reduce)?;
        pass.ready(w)?;
        pass.end()?;
        let error = rule.step(&mut model).unwrap_err();
        assert_eq!(error.status(), Status::Callback);
        assert!(error.text().contains("the rule panicked"), "{}", error);
        drop(rule); // releases the function, whose drop panics
        drop(model);
        group.barrier()
    });
}

#[test]
fn a_model_is_reopened() {
    ranks("reopened", 2, |group| {
        let mut model = Model::new(&group, ModelOptions::new())?;
        let gone = model.add_parameter("gone", vec![1f32; 2], &[2])?;
        let stays = model.add_parameter("stays", vec![1f32; 3], &[3])?;
        let table = model.add_buffer("table", vec![1f32], &[1])?;
        model.commit()?;
        model.reopen()?;
        model.remove_parameter(gone)?;
        assert_eq!(status(model.remove_parameter(gone)), Status::InvalidArgument);
        model.remove_buffer(table)?;
        let added = model.add_parameter("gone", vec![group.rank() as f32 + 4.0; 2], &[2])?;
        model.commit()?;
        assert_eq!(added.index(), 2);
        assert_eq!(model.value(added)?, [4.0, 4.0]); // rank 0's
        let mut pass = model.backward(PassKind::Reduce)?;
        pass.split().1.get(added)?.fill(2.0 * group.rank() as f32);
        pass.ready(added)?;
        pass.split().1.get(stays)?.fill(1.0);
        pass.ready(stays)?;
        pass.end()?;
        assert_eq!(model.grad(added)?, [1.0, 1.0]);
        Ok(())
    });
}
