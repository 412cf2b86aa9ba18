// SPDX-License-Identifier: Apache-2.0
//! The program of tests/bindings/README.md in Rust: the same bits as in C. Rust fuses no multiply-add and keeps the order of sums.
use ddp::{
    Ema, Gradients, Group, GroupOptions, Model, ModelOptions, Optimizer, Parameter, Pass, PassKind, Reduce, Sampler, SgdOptions, Values,
};

const INPUTS: usize = 8;
const HIDDEN: usize = 16;
const OUTPUTS: usize = 4;
const SAMPLES: usize = 96;
const BATCH: usize = 8;
const EPOCHS: i64 = 10;

fn next_number(state: &mut u32) -> f32 {
    *state = state.wrapping_mul(1664525).wrapping_add(1013904223);
    ((*state >> 16) as f32 - 32768.0) / 32768.0
}

struct Network {
    x: Vec<[f32; INPUTS]>,
    t: Vec<[f32; OUTPUTS]>,
    w1: Parameter<f32>,
    b1: Parameter<f32>,
    w2: Parameter<f32>,
    b2: Parameter<f32>,
}

impl Network {
    fn new(model: &mut Model, rank: usize) -> ddp::Result<Network> {
        let (mut x, mut t) = (vec![[0.0; INPUTS]; SAMPLES], vec![[0.0; OUTPUTS]; SAMPLES]);
        let mut state = 1u32;
        for s in 0..SAMPLES {
            x[s].iter_mut().for_each(|value| *value = next_number(&mut state));
            t[s].iter_mut().for_each(|value| *value = next_number(&mut state) * 0.5);
        }
        state = 7 + rank as u32; // rank 0's weights reach everybody at commit
        let w1 = (0..HIDDEN * INPUTS).map(|_| next_number(&mut state) * 0.5).collect();
        let w2 = (0..OUTPUTS * HIDDEN).map(|_| next_number(&mut state) * 0.5).collect();
        Ok(Network {
            x,
            t,
            w1: model.add_parameter("w1", w1, &[HIDDEN, INPUTS])?,
            b1: model.add_parameter("b1", vec![0.0; HIDDEN], &[HIDDEN])?,
            w2: model.add_parameter("w2", w2, &[OUTPUTS, HIDDEN])?,
            b2: model.add_parameter("b2", vec![0.0; OUTPUTS], &[OUTPUTS])?,
        })
    }

    fn forward(&self, values: &Values, sample: usize, scale: f32) -> ddp::Result<([f32; HIDDEN], [f32; OUTPUTS], f64)> {
        let (w1, b1, w2, b2) = (values.get(self.w1)?, values.get(self.b1)?, values.get(self.w2)?, values.get(self.b2)?);
        let (mut h, mut d, mut loss) = ([0f32; HIDDEN], [0f32; OUTPUTS], 0f64);
        for i in 0..HIDDEN {
            h[i] = b1[i];
            for j in 0..INPUTS {
                h[i] += w1[i * INPUTS + j] * self.x[sample][j];
            }
            if h[i] < 0.0 {
                h[i] = 0.0;
            }
        }
        for o in 0..OUTPUTS {
            let mut y = b2[o];
            for i in 0..HIDDEN {
                y += w2[o * HIDDEN + i] * h[i];
            }
            let error = y - self.t[sample][o];
            loss += error as f64 * error as f64;
            d[o] = error * scale;
        }
        Ok((h, d, loss))
    }

    fn backward(&self, values: &Values, grads: &mut Gradients, sample: usize, h: &[f32], d: &[f32]) -> ddp::Result<()> {
        let w2 = values.get(self.w2)?;
        for o in 0..OUTPUTS {
            grads.get(self.b2)?[o] += d[o];
            let w2_grad = grads.get(self.w2)?;
            for i in 0..HIDDEN {
                w2_grad[o * HIDDEN + i] += d[o] * h[i];
            }
        }
        for i in 0..HIDDEN {
            let mut back = 0f32;
            for o in 0..OUTPUTS {
                back += w2[o * HIDDEN + i] * d[o];
            }
            if h[i].is_nan() || h[i] <= 0.0 {
                back = 0.0;
            }
            grads.get(self.b1)?[i] += back;
            let w1_grad = grads.get(self.w1)?;
            for j in 0..INPUTS {
                w1_grad[i * INPUTS + j] += back * self.x[sample][j];
            }
        }
        Ok(())
    }

    fn learn(&self, pass: &mut Pass, sample: usize, scale: f32) -> ddp::Result<f64> {
        let (values, mut grads) = pass.split();
        let (h, d, loss) = self.forward(&values, sample, scale)?;
        self.backward(&values, &mut grads, sample, &h, &d)?;
        Ok(loss)
    }

    fn work(&self, model: &mut Model, chosen: &[usize], last: PassKind) -> ddp::Result<f64> {
        let (first, second) = chosen.split_at(chosen.len() / 2);
        let mut loss = 0f64;
        for (half, kind) in [(first, PassKind::Accumulate), (second, last)] {
            let mut pass = model.backward(kind)?;
            for &sample in half {
                loss += self.learn(&mut pass, sample, 1.0 / chosen.len() as f32)?;
            }
            for parameter in [self.b2, self.w2, self.b1, self.w1] {
                pass.ready(parameter)?;
            }
            pass.end()?;
        }
        Ok(loss)
    }
}

fn train(group: &Group, model: &mut Model, network: &Network, sgd: &mut Optimizer, ema: &mut Ema) -> ddp::Result<f64> {
    let parts = group.parts()?;
    let mut last = 0f64;
    for epoch in 0..EPOCHS {
        let mut sums = vec![0f64; 2 * parts.mine.len()];
        let mut shares = Vec::new();
        for part in parts.mine.clone() {
            shares.push(Sampler::of(SAMPLES)?.seed(3).part(part, parts.total).indices(epoch)?);
        }
        for first in (0..shares[0].len()).step_by(BATCH) {
            model.zero_grad()?;
            for (i, share) in shares.iter().enumerate() {
                let chosen = &share[first..share.len().min(first + BATCH)];
                let kind = if i + 1 < shares.len() { PassKind::Part } else { PassKind::Reduce };
                sums[2 * i] += network.work(model, chosen, kind)?;
                sums[2 * i + 1] += chosen.len() as f64;
            }
            let norm = model.grad_norm(2.0)?;
            if norm > 0.5 {
                model.scale_grad(0.5 / norm)?;
            }
            sgd.step(model)?;
            ema.update(model)?;
        }
        group.reduce_part_metrics(&mut sums, Reduce::Sum)?;
        last = sums[0] / sums[1];
    }
    Ok(last)
}

fn main() -> ddp::Result<()> {
    let parts = std::env::var("SAME_BITS_PARTS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let group = Group::meet("env://", GroupOptions::new().virtual_ranks(parts))?;
    let mut model = Model::new(&group, ModelOptions::new().first_bucket_bytes(256).bucket_bytes(512))?;
    let network = Network::new(&mut model, group.rank())?;
    model.commit()?;
    let mut sgd = Optimizer::sgd(&mut model, SgdOptions::new().rate(0.0625).momentum(0.875), Default::default())?;
    let mut ema = Ema::new(&mut model, &[0.75])?;
    let loss = train(&group, &mut model, &network, &mut sgd, &mut ema)?;
    let parameters = model.hash()?;
    ema.swap(&mut model, 0)?;
    let averages = model.hash()?;
    ema.swap(&mut model, 0)?;
    let (rank, size) = (group.rank(), group.size());
    println!("rank {} of {}: parameters {:016x} averages {:016x} loss {:016x}", rank, size, parameters, averages, loss.to_bits());
    group.barrier()
}
