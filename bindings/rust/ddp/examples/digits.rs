// SPDX-License-Identifier: Apache-2.0
//! Train a network on handwritten digits, on any number of ranks: examples/02_train.c in Rust.
//!
//!     ddprun -n 2 target/release/examples/digits digits.csv [EPOCHS [CHECKPOINT [resume]]]
//!
//! A perceptron with one hidden layer (64-96-10) reads 8x8 pixels and names the digit. Read `train` first, then `learn`: these two are
//! what a program of your own needs. The global batch has 64 samples whatever the number of ranks.
use ddp::{AdamOptions, Group, Model, Optimizer, Parameter, PassKind, Reduce, Sampler, State};

const PIXELS: usize = 64;
const HIDDEN: usize = 96;
const DIGITS: usize = 10;
const GLOBAL_BATCH: usize = 64;

type Failure = Box<dyn std::error::Error>;

struct Digit {
    pixels: Vec<f32>,
    label: usize,
}

/// Every fifth one tests, the others are learned.
fn read_digits(path: &str) -> Result<(Vec<Digit>, Vec<Digit>), Failure> {
    let (mut learned, mut tested) = (Vec::new(), Vec::new());
    for (number, line) in std::fs::read_to_string(path)?.lines().enumerate() {
        let mut numbers = line.split(',').map(|text| text.trim().parse::<u8>()).collect::<Result<Vec<_>, _>>()?;
        let label = numbers.pop().ok_or("an empty line")? as usize;
        let digit = Digit { pixels: numbers.iter().map(|&value| value as f32 / 16.0).collect(), label };
        if number % 5 == 0 { &mut tested } else { &mut learned }.push(digit);
    }
    Ok((learned, tested))
}

/// Small random numbers (He's initialisation).
fn random_weights(inputs: usize, outputs: usize, state: &mut u64) -> Vec<f32> {
    let spread = (6.0 / inputs as f32).sqrt();
    let mut next = || {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        spread * ((*state >> 40) as f32 / 8388608.0 - 1.0)
    };
    (0..inputs * outputs).map(|_| next()).collect()
}

/// y = W x + b, with a row of W for each output.
fn affine(w: &[f32], b: &[f32], x: &[f32]) -> Vec<f32> {
    w.chunks(x.len()).zip(b).map(|(row, b)| row.iter().zip(x).map(|(w, x)| w * x).sum::<f32>() + b).collect()
}

/// The hidden values and the share of each digit.
fn forward(w: [&[f32]; 4], pixels: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let h: Vec<f32> = affine(w[0], w[1], pixels).iter().map(|&value| value.max(0.0)).collect();
    let y = affine(w[2], w[3], &h);
    let most = y.iter().cloned().fold(f32::MIN, f32::max);
    let e: Vec<f32> = y.iter().map(|value| (value - most).exp()).collect();
    let sum: f32 = e.iter().sum();
    (h, e.iter().map(|value| value / sum).collect())
}

fn guess(p: &[f32]) -> usize {
    (0..p.len()).fold(0, |best, digit| if p[digit] > p[best] { digit } else { best })
}

/// Adds the gradient of a layer, `scale` times delta by inputs.
fn accumulate(w_grad: &mut [f32], delta: &[f32], x: &[f32], scale: f32) {
    for (row, d) in w_grad.chunks_mut(x.len()).zip(delta) {
        row.iter_mut().zip(x).for_each(|(g, x)| *g += scale * d * x);
    }
}

/// One step on a batch of this rank: loss and number of right answers.
fn learn(model: &mut Model, layers: &[Parameter<f32>; 4], adam: &mut Optimizer, batch: &[&Digit]) -> ddp::Result<(f64, f64)> {
    let (mut loss, mut right, scale) = (0f64, 0f64, 1.0 / batch.len() as f32);
    model.zero_grad()?;
    let mut pass = model.backward(PassKind::Reduce)?;
    let (values, mut grads) = pass.split();
    let w = [values.get(layers[0])?, values.get(layers[1])?, values.get(layers[2])?, values.get(layers[3])?];
    let mut hidden = Vec::new();
    for digit in batch {
        let (h, mut p) = forward(w, &digit.pixels);
        loss -= (p[digit.label] as f64).ln();
        right += (guess(&p) == digit.label) as u8 as f64;
        p[digit.label] -= 1.0; // from here on the gradient of the loss
        accumulate(grads.get(layers[2])?, &p, &h, scale);
        accumulate(grads.get(layers[3])?, &p, &[1.0], scale);
        let back = |i: usize| p.iter().enumerate().map(|(o, d)| w[2][o * HIDDEN + i] * d).sum::<f32>();
        hidden.push((0..HIDDEN).map(|i| if h[i] > 0.0 { back(i) } else { 0.0 }).collect::<Vec<_>>());
    }
    pass.ready(layers[3])?;
    pass.ready(layers[2])?; // complete: libddp may send it while we compute the layer below
    let (_, mut grads) = pass.split();
    for (digit, delta) in batch.iter().zip(&hidden) {
        accumulate(grads.get(layers[0])?, delta, &digit.pixels, scale);
        accumulate(grads.get(layers[1])?, delta, &[1.0], scale);
    }
    pass.ready(layers[1])?;
    pass.ready(layers[0])?;
    pass.end()?; // now the gradients are the mean over all ranks, the same bits everywhere
    adam.step(model)?; // ... and so is the step
    Ok((loss, right))
}

fn train(data: &str, epochs: i64, checkpoint: &str, resume: bool) -> Result<(), Failure> {
    let (learned, tested) = read_digits(data)?;
    let group = Group::new()?; // rank and size come from the launcher; started alone, the group has one rank
    let mut model = Model::new(&group, Default::default())?;
    let mut random = 1; // ranks need not agree: rank 0's weights reach everybody at commit
    let layers = [
        model.add_parameter("hidden.weight", random_weights(PIXELS, HIDDEN, &mut random), &[HIDDEN, PIXELS])?,
        model.add_parameter("hidden.bias", vec![0.0; HIDDEN], &[HIDDEN])?,
        model.add_parameter("output.weight", random_weights(HIDDEN, DIGITS, &mut random), &[DIGITS, HIDDEN])?,
        model.add_parameter("output.bias", vec![0.0; DIGITS], &[DIGITS])?,
    ];
    model.commit()?;
    let mut adam = Optimizer::adam(&mut model, AdamOptions::new().rate(0.004), Default::default())?;
    let start = if resume { State::new(&mut model).optimizer(&mut adam).load(checkpoint)?.epoch } else { 0 };
    let sampler = Sampler::new(&group, learned.len())?;
    for epoch in start..epochs {
        let mut sums = [0f64; 5]; // loss, right, seen; right and seen in the test
        for chosen in sampler.indices(epoch)?.chunks(GLOBAL_BATCH / group.size()) {
            let batch: Vec<&Digit> = chosen.iter().map(|&index| &learned[index]).collect();
            let (loss, right) = learn(&mut model, &layers, &mut adam, &batch)?;
            sums[0] += loss;
            sums[1] += right;
            sums[2] += batch.len() as f64;
        }
        let w = [model.value(layers[0])?, model.value(layers[1])?, model.value(layers[2])?, model.value(layers[3])?];
        for digit in tested.iter().skip(group.rank()).step_by(group.size()) {
            sums[3] += (guess(&forward(w, &digit.pixels).1) == digit.label) as u8 as f64;
            sums[4] += 1.0;
        }
        group.reduce_metrics(&mut sums, Reduce::Sum)?; // sum first, divide afterwards
        if group.rank() == 0 {
            let (train, test) = (100.0 * sums[1] / sums[2], 100.0 * sums[3] / sums[4]);
            println!("epoch {:2}  loss {:.4}  train {:.2}  test accuracy {:.2}", epoch + 1, sums[0] / sums[2], train, test);
        }
    }
    State::new(&mut model).optimizer(&mut adam).epoch(epochs).save(checkpoint)?; // every rank calls, rank 0 writes
    model.check_replicas()?; // are all weights the same on all ranks?
    if group.rank() == 0 {
        println!("{} ranks, all equal", group.size());
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let word = |number: usize, default: &str| words.get(number).cloned().unwrap_or_else(|| default.to_string());
    train(&word(1, "digits.csv"), word(2, "15").parse()?, &word(3, "digits.safetensors"), word(4, "") == "resume")
}
