# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them, at toy size. Each prints losses of every rank: with PyTorch's wrapper over Gloo, with PyTorch's wrapper on the
backend libddp, and with libddp's wrapper and optimizers. They are the same to the last bit, as a sum of two ranks has one order only."""
import os

from support import Test, forked, main, need

need("torch", "numpy")
import libddp.c10d  # noqa: E402, F401
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import contextlib, copy, hashlib, math, os, warnings, libddp.c10d, libddp.torch, torch, torch.distributed as dist
from functools import partial
from torch import nn
from torch.nn import functional as F
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
warnings.simplefilter("ignore")
torch.set_num_threads(1)
dist.init_process_group("libddp" if way == "backend" else "gloo")
DDP = libddp.torch.DistributedDataParallel if way in ("wrapper", "kernels") else nn.parallel.DistributedDataParallel
# libddp's optimizers make the steps of PyTorch's fused kernels.
SGD, Adam, AdamW = (getattr(libddp.torch, name) if way in ("wrapper", "kernels") else partial(getattr(torch.optim, name), fused=True)
                    for name in ("SGD", "Adam", "AdamW"))
if way == "wide":
    torch.set_default_dtype(torch.float64)
def say(what, value):
    print("loss", what, repr(float(value)))
def say_all(module):
    '''The bits of all parameters.'''
    print("loss", hashlib.sha256(b"".join(p.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() for p in module.parameters())).hexdigest())
def noise(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 * seed + rank))
"""


class Programs(Test):
    def losses(self, program, way, limit=120):
        done = forked(f"way = {way!r}\n" + COMMON + program, size=2, limit=limit)
        return [line for line in self.ends_well(done).splitlines() if line[4:].startswith("loss ")]

    def run_ways(self, program, ways=("backend", "wrapper"), **keywords):
        wanted = self.losses(program, "gloo", **keywords)
        self.assertGreater(len(wanted), 8)
        self.assertFalse([line for line in wanted if line.endswith((" nan", " inf"))])
        for way in ways:
            self.assertEqual(wanted, self.losses(program, way, **keywords), way)

    def test_nanogpt(self):
        self.run_ways(NANOGPT.replace("VARIANTS", "((False, 0.0), (False, 0.1), (True, 0.0))"))

    def test_nanogpt_with_libddps_kernels(self):
        """Their steps have other roundings than PyTorch's. In F64 is what both come near to."""
        program = NANOGPT.replace("VARIANTS", "((False, 0.0),)").replace("say_all(model)", "pass")
        gloo, kernels, wide = ([float(line.split()[-1]) for line in self.losses(program, way)] for way in ("gloo", "kernels", "wide"))
        self.assertEqual(len(gloo), len(kernels))
        worst = max(abs(one - exact) for one, exact in zip(gloo, wide))
        self.assertLess(max(abs(one - exact) for one, exact in zip(kernels, wide)), 4 * worst + 1e-6)

    def test_dcgan(self):
        self.run_ways("""
class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.ConvTranspose2d(8, 16, 4, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
                         nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh())
class Discriminator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True), nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16),
                         nn.LeakyReLU(0.2, True), nn.Conv2d(16, 1, 2, bias=False), nn.Sigmoid(), nn.Flatten(0))
def weights_init(part):
    if isinstance(part, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(part.weight, 0.0, 0.02)
    elif isinstance(part, nn.BatchNorm2d):
        nn.init.normal_(part.weight, 1.0, 0.02)
torch.manual_seed(3)
netG, netD = DDP(Generator().apply(weights_init)), DDP(Discriminator().apply(weights_init))
optimizerD, optimizerG = (Adam(net.parameters(), lr=2e-3, betas=(0.5, 0.999)) for net in (netD, netG))
criterion = nn.BCELoss()
for i in range(6):
    netD.zero_grad()                                        # as PyTorch's example: two passes of D, then G through D
    real = noise(6, 1, 8, 8, seed=2 * i).clamp(-1, 1)
    label = torch.ones(6)
    errD_real = criterion(netD(real), label)
    errD_real.backward()
    fake = netG(noise(6, 8, 1, 1, seed=2 * i + 1))
    errD_fake = criterion(netD(fake.detach()), label.fill_(0))
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    errG = criterion(netD(fake), label.fill_(1))
    errG.backward()
    optimizerG.step()
    say("D", errD_real + errD_fake), say("G", errG)
say_all(netG), say_all(netD)
""")

    def test_wgan_with_a_gradient_penalty(self):
        for words in ("", "find_unused_parameters=True, bucket_cap_mb=0.0001"):
            self.run_ways("""
def net(*widths):
    return nn.Sequential(*(part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), nn.LayerNorm(b), nn.Softplus())), nn.Linear(widths[-1], 1))
torch.manual_seed(4)
G, D = DDP(nn.Sequential(nn.Linear(3, 16), nn.Softplus(), nn.Linear(16, 2))), DDP(net(2, 16, 16), WORDS)
optG, optD = Adam(G.parameters(), lr=1e-2, betas=(0.0, 0.9)), Adam(D.parameters(), lr=1e-2, betas=(0.0, 0.9))
def calc_gradient_penalty(real, fake, alpha):
    between = (alpha * real + (1 - alpha) * fake).requires_grad_()
    out = D(between)
    slopes, = torch.autograd.grad(out, between, torch.ones_like(out), create_graph=True, retain_graph=True)
    return 10 * ((slopes.norm(2, dim=1) - 1) ** 2).mean()
for step in range(4):
    for p in D.parameters():
        p.requires_grad_(True)                              # as in the published program: D is frozen while G learns
    for k in range(3):
        seed = 10 * step + k
        real, z = noise(8, 2, seed=seed) + 2, noise(8, 3, seed=seed + 500)
        optD.zero_grad()
        fake = G(z).detach()
        penalty = calc_gradient_penalty(real, fake, noise(8, 1, seed=seed + 700).sigmoid())
        loss = D(fake).mean() - D(real).mean() + penalty
        loss.backward()
        optD.step()
        say("D", loss), say("penalty", penalty)
    for p in D.parameters():
        p.requires_grad_(False)
    optG.zero_grad()
    loss = -D(G(noise(8, 3, seed=step + 900))).mean()
    loss.backward()
    optG.step()
    say("G", loss)
say_all(G), say_all(D)
""".replace("WORDS", words))

    def test_dino(self):
        self.run_ways("""
class Head(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, 16), nn.GELU(), nn.Linear(16, 8))
        self.last_layer = nn.utils.weight_norm(nn.Linear(8, out, bias=False))
        self.last_layer.weight_g.data.fill_(1)
        self.last_layer.weight_g.requires_grad = False
    def forward(self, x):
        return self.last_layer(F.normalize(self.mlp(x), dim=-1))
class MultiCrop(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 8)), Head(8, 10)
    def forward(self, crops):
        return self.head(torch.cat([self.backbone(crop) for crop in crops]))
class DINOLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, 10))
    def forward(self, student, teacher):
        student = (student / 0.1).chunk(4)
        targets = F.softmax((teacher - self.center) / 0.04, dim=-1).detach().chunk(2)
        terms = [(-q * F.log_softmax(student[v], dim=-1)).sum(-1).mean() for i, q in enumerate(targets) for v in range(4) if v != i]
        self.update_center(teacher)
        return sum(terms) / len(terms)
    @torch.no_grad()
    def update_center(self, teacher):
        batch_center = teacher.sum(0, keepdim=True)
        dist.all_reduce(batch_center)
        self.center = self.center * 0.9 + batch_center / (len(teacher) * size) * 0.1
def get_params_groups(model):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [{"params": [p for n, p in named if not (n.endswith(".bias") or p.dim() == 1)]},
            {"params": [p for n, p in named if n.endswith(".bias") or p.dim() == 1], "weight_decay": 0.0}]
def clip_gradients(model, clip):
    for n, p in model.named_parameters():
        if p.grad is not None:
            coefficient = clip / (p.grad.data.norm(2) + 1e-6)
            if coefficient < 1:
                p.grad.data.mul_(coefficient)
def cancel_gradients_last_layer(epoch, model, freeze):
    if epoch < freeze:
        for n, p in model.named_parameters():
            if "last_layer" in n:
                p.grad = None
torch.manual_seed(5)
student, teacher = MultiCrop(), MultiCrop()
student = DDP(student)
teacher.load_state_dict(student.module.state_dict())
for p in teacher.parameters():
    p.requires_grad = False
dino_loss = DINOLoss()
optimizer = AdamW(get_params_groups(student))
for it in range(9):
    for i, group in enumerate(optimizer.param_groups):
        group["lr"] = 0.01 * (1 + math.cos(math.pi * it / 9)) / 2
        if i == 0:
            group["weight_decay"] = 0.04 + 0.04 * it
    crops = [noise(5, 6, seed=10 * it + crop) for crop in range(4)]
    loss = dino_loss(student(crops), teacher(crops[:2]))
    optimizer.zero_grad()
    loss.backward()
    clip_gradients(student, 0.3)
    cancel_gradients_last_layer(it // 3, student, 1)
    optimizer.step()
    with torch.no_grad():
        m = 0.99
        for q, k in zip(student.module.parameters(), teacher.parameters()):
            k.data.mul_(m).add_((1 - m) * q.detach().data)
    say("dino", loss)
say_all(student), say_all(teacher)
""")

    def test_pcgrad(self):
        self.run_ways("""
class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.heads = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 8), nn.Tanh()), nn.ModuleList(nn.Linear(8, 2) for _ in range(3))
    def forward(self, x, task=None):
        hidden = self.trunk(x)
        return self.heads[task](hidden) if task is not None else [head(hidden) for head in self.heads]
def flat(grads):
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(net.parameters(), grads)])
def project(grads):
    done = []
    for i, grad in enumerate(grads):
        grad = grad.clone()
        for other in grads[i + 1:] + grads[:i]:
            along = grad.dot(other)
            if along < 0:
                grad -= along * other / other.norm() ** 2
        done.append(grad)
    return torch.stack(done).mean(0)
def set_grads(total):
    for p, part in zip(net.parameters(), total.split([p.numel() for p in net.parameters()])):
        p.grad = part.view_as(p)
for how in ("a pass each", "one forward", "autograd.grad", "autograd.grad without no_sync", "inputs"):
    torch.manual_seed(6)
    net = DDP(Tasks(), find_unused_parameters=how in ("a pass each", "one forward"))
    optimizer = Adam(net.parameters(), lr=1e-2)
    for step in range(4):
        x, y = noise(6, 5, seed=step), [noise(6, 2, seed=step + 100 * task) for task in range(3)]
        grads, losses = [], []
        if how == "a pass each":
            for task in range(3):
                optimizer.zero_grad(set_to_none=True)
                losses.append(F.mse_loss(net(x, task), y[task]))
                losses[-1].backward()
                grads.append(flat([None if p.grad is None else p.grad.clone() for p in net.parameters()]))
        else:                                               # of one graph, and summed by the program
            with net.no_sync() if "without" not in how else contextlib.nullcontext():
                losses = [F.mse_loss(out, goal) for out, goal in zip(net(x), y)]
                for loss in losses:
                    if how == "one forward":
                        optimizer.zero_grad(set_to_none=True)
                        loss.backward(retain_graph=True)
                        grads.append(flat([p.grad for p in net.parameters()]))
                    elif how == "inputs":
                        loss.backward(retain_graph=True, inputs=list(net.module.trunk.parameters()))
                        grads.append(flat([p.grad for p in net.parameters()]))
                        net.zero_grad()
                    else:
                        grads.append(flat(torch.autograd.grad(loss, list(net.parameters()), retain_graph=True, allow_unused=True)))
            for grad in grads:
                dist.all_reduce(grad)
                grad /= size
        set_grads(project(grads))
        optimizer.step()
        for loss in losses:
            say(how, loss)
    say_all(net)
""")

    def test_lora(self):
        self.run_ways("""
class LoRA(nn.Module):
    def __init__(self, base, r=2, alpha=4):
        super().__init__()
        self.base, self.scale, self.merged = base, alpha / r, False
        self.A, self.B = nn.Parameter(torch.randn(r, base.in_features) * 0.1), nn.Parameter(torch.zeros(base.out_features, r))
    def forward(self, x):
        return self.base(x) if self.merged else self.base(x) + (F.dropout(x, 0.1, self.training) @ self.A.T @ self.B.T) * self.scale
    def merge(self, on):
        self.base.weight.data += (1 if on else -1) * (self.B @ self.A).detach() * self.scale
        self.merged = on
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layers, self.out = nn.Embedding(11, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), nn.Linear(8, 11)
        self.offset = nn.Parameter(torch.full((8,), 0.5, dtype=torch.bfloat16))
    def forward(self, x):
        h = self.embedding(x) + self.offset.float()
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        return self.out(h)
torch.manual_seed(7 + rank)                                 # the wrapper sends the frozen weights too
net = Net().requires_grad_(False)
net.layers = nn.ModuleList(LoRA(layer) for layer in net.layers)
net.out.bias.requires_grad_(True)
net = DDP(net)
optimizer = AdamW([p for p in net.parameters() if p.requires_grad], lr=2e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=8)
torch.manual_seed(70 + rank)
for step in range(8):
    x = torch.randint(11, (4, 6), generator=torch.Generator().manual_seed(10 * step + rank))
    loss = F.cross_entropy(net(x).flatten(0, 1), ((x + 1) % 11).flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step(), scheduler.step()
    say("train", loss)
    if step % 3 == 2:
        net.eval()
        for on in (True, False):
            for layer in net.module.layers:
                layer.merge(on)
            if on:
                with torch.no_grad():
                    say("merged", F.cross_entropy(net(x).flatten(0, 1), ((x + 1) % 11).flatten()))
        net.train()
say_all(net)
""")

    def test_sam_and_maml(self):
        self.run_ways("""
torch.manual_seed(9)
net = DDP(nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2)))
optimizer = SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(5):                                       # sharpness-aware: the ascent of each rank's own gradient, or of the mean
    x, y, moved = noise(6, 4, seed=step), noise(6, 2, seed=step + 50), []
    with net.no_sync() if step % 2 else contextlib.nullcontext():
        loss = F.mse_loss(net(x), y)
        loss.backward()
    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    with torch.no_grad():
        for p in net.parameters():
            moved.append(p.grad * (0.05 / norm))
            p.add_(moved[-1])
    optimizer.zero_grad()
    second = F.mse_loss(net(x), y)
    second.backward()
    with torch.no_grad():
        for p, e in zip(net.parameters(), moved):
            p.sub_(e)
    optimizer.step(), optimizer.zero_grad()
    say("sam", loss), say("sam", second)
for second_order in (False, True):                          # tasks with inner steps; the outer gradient goes through them
    for step in range(4):
        outer = 0
        for task in range(2):
            names, fast = zip(*net.named_parameters())
            x, y = noise(8, 4, seed=10 * step + task), noise(8, 2, seed=10 * step + task + 5)
            for inner in range(2):
                out = torch.func.functional_call(net, dict(zip(names, fast)), x[:4]) if inner else net(x[:4])
                slopes = torch.autograd.grad(F.mse_loss(out, y[:4]), fast, create_graph=second_order)
                fast = [p - 0.1 * g for p, g in zip(fast, slopes)]
            outer = outer + F.mse_loss(torch.func.functional_call(net.module, dict(zip(net.module.state_dict(), fast)), x[4:]), y[4:])
        outer.backward()
        optimizer.step(), optimizer.zero_grad()
        say("maml", outer)
say_all(net)
""".replace("functional_call(net, dict(zip(names, fast))", "functional_call(net.module, dict(zip(net.module.state_dict(), fast))"))

    def test_contrastive_learning(self):
        """CLIP, which differentiates through a gather, and MoCo, whose queue is a buffer."""
        self.run_ways("""
from torch.distributed.nn.functional import all_gather
class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text, self.scale = nn.Linear(6, 5), nn.Embedding(9, 5), nn.Parameter(torch.tensor(math.log(1 / 0.07)))
    def forward(self, image, text):
        return F.normalize(self.image(image), dim=-1), F.normalize(self.text(text).mean(1), dim=-1), self.scale.exp()
torch.manual_seed(10)
clip = DDP(Clip())
optimizer = AdamW(clip.parameters(), lr=1e-2)
for step in range(5):
    images, texts, scale = clip(noise(4, 6, seed=step), torch.randint(9, (4, 3), generator=torch.Generator().manual_seed(step * 2 + rank)))
    images, texts = torch.cat(all_gather(images)), torch.cat(all_gather(texts))
    logits = scale * images @ texts.T
    loss = (F.cross_entropy(logits, torch.arange(8)) + F.cross_entropy(logits.T, torch.arange(8))) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        clip.module.scale.clamp_(0, math.log(100))
    say("clip", loss)
class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = (nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(2))
        self.k.load_state_dict(self.q.state_dict())
        for p in self.k.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(4, 32), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))
    @torch.no_grad()
    def keys(self, x):
        for q, k in zip(self.q.parameters(), self.k.parameters()):
            k.data = k.data * 0.9 + q.data * 0.1
        everything = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(everything, x)
        order = torch.randperm(len(x) * size)
        dist.broadcast(order, 0)                            # batch normalisation sees the samples of several ranks
        out = F.normalize(self.k(torch.cat(everything)[order.view(size, -1)[rank]]), dim=1)
        dist.all_gather(shuffled := [torch.empty_like(out) for _ in range(size)], out)
        return torch.cat(shuffled)[order.argsort().view(size, -1)[rank]]
    def forward(self, one, other):
        q, k = F.normalize(self.q(one), dim=1), self.keys(other)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()], 1) / 0.07
        dist.all_gather(found := [torch.empty_like(k) for _ in range(size)], k)
        place = int(self.queue_ptr)
        self.queue[:, place:place + 8] = torch.cat(found).T
        self.queue_ptr[0] = (place + 8) % 32
        return logits
moco = DDP(MoCo())
optimizer = SGD(moco.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
for step in range(7):
    loss = F.cross_entropy(moco(noise(4, 6, seed=step), noise(4, 6, seed=step + 40)), torch.zeros(4, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    say("moco", loss)
say_all(clip), say_all(moco)
""")

    def test_spectral_norm_and_r1(self):
        self.run_ways("""
from torch.nn.utils.parametrizations import spectral_norm
for norm in (spectral_norm, nn.utils.spectral_norm):
    torch.manual_seed(11)
    G = DDP(nn.Sequential(nn.Linear(3, 10), nn.LeakyReLU(0.2), nn.Linear(10, 4)), broadcast_buffers=False)
    D = DDP(nn.Sequential(norm(nn.Linear(4, 10)), nn.LeakyReLU(0.2), norm(nn.Linear(10, 1))), broadcast_buffers=False)
    ema = copy.deepcopy(G).eval()
    optG, optD = Adam(G.parameters(), lr=1e-2, betas=(0.0, 0.99)), Adam(D.parameters(), lr=1e-2, betas=(0.0, 0.99))
    for step in range(6):
        G.requires_grad_(False), D.requires_grad_(True)
        real = noise(6, 4, seed=step)
        loss = F.softplus(D(G(noise(6, 3, seed=step + 20)))).mean() + F.softplus(-D(real)).mean()
        optD.zero_grad()
        loss.backward()
        optD.step()
        say("D", loss)
        if step % 2 == 0:                                   # a lazy penalty: a pass of its own
            real.requires_grad_(True)
            out = D(real)
            slope, = torch.autograd.grad(out.sum(), real, create_graph=True)
            penalty = slope.pow(2).sum(1).mean()
            optD.zero_grad()
            (5 * penalty + 0 * out[0].sum()).backward()
            optD.step()
            say("r1", penalty)
        G.requires_grad_(True), D.requires_grad_(False)
        loss = F.softplus(-D(G(noise(6, 3, seed=step + 60)))).mean()
        optG.zero_grad()
        loss.backward()
        optG.step()
        say("G", loss)
        with torch.no_grad():
            for old, new in zip(ema.parameters(), G.parameters()):
                old.lerp_(new, 0.1)
            say("ema", ema(noise(6, 3, seed=90)).mean())
    say_all(G), say_all(D), say_all(ema)
""")

    def test_recurrent_and_reinforced(self):
        """Truncated backward through time, and PPO: evaluations of different number on the ranks, several passes over one batch, an early end."""
        self.run_ways("""
class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.out = nn.Embedding(9, 6), nn.LSTM(6, 8, 2, dropout=0.1), nn.Linear(8, 9)
    def forward(self, x, state=None):
        y, state = self.lstm(self.embedding(x), state)
        return self.out(y), state
torch.manual_seed(12)
net, state = DDP(Lstm()), None
optimizer = SGD(net.parameters(), lr=0.5)
data = torch.randint(9, (41, 3), generator=torch.Generator().manual_seed(rank))
for begin in range(0, 40, 5):
    optimizer.zero_grad()
    state = None if state is None else tuple(each.detach() for each in state)
    out, state = net(data[begin:begin + 5], state)
    loss = F.cross_entropy(out.flatten(0, 1), data[begin + 1:begin + 6].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.25)
    optimizer.step()
    say("lstm", loss)
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = (nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, n)) for n in (2, 1))
    def forward(self, x, action=None):
        found = torch.distributions.Categorical(logits=self.actor(x))
        action = found.sample() if action is None else action
        return action, found.log_prob(action), found.entropy(), self.critic(x).flatten()
agent = DDP(Agent())
optimizer = Adam(agent.parameters(), lr=2e-2, eps=1e-5)
target = copy.deepcopy(agent)
for update in range(3):
    seen, state = [], noise(4, 3, seed=update)
    with torch.no_grad():
        for turn in range(4 + 2 * rank):                    # in train mode, and more often on one rank
            action, logprob, _, value = agent(state)
            seen.append((state, action, logprob, value))
            state = (state + 0.1 * (action[:, None] * 2 - 1)).tanh()
    states, actions, logprobs, values = map(torch.cat, zip(*seen))
    gain = -(states ** 2).sum(1) - values
    for epoch in range(3):
        _, new, entropy, value = agent(states, actions)
        ratio = (new - logprobs).exp()
        drift = ((ratio - 1) - (new - logprobs)).mean().detach()
        loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean() + 0.5 * (value - values - gain).pow(2).mean() - 0.01 * entropy.mean()
        dist.all_reduce(drift)
        if drift > 0.02:
            break                                           # a graph whose backward() never comes
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        say("ppo", loss)
    target.load_state_dict(agent.state_dict())
    with torch.no_grad():
        say("target", target(states, actions)[3].mean())
say_all(net), say_all(agent)
""")

    def test_weights_with_a_largest_norm(self):
        """As EEGNet has them: forward() puts other data into the parameter. And weights that are clipped between two steps."""
        self.run_ways("""
class Constrained(nn.Linear):
    def forward(self, x):
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.5)
        return super().forward(x)
for words in (dict(), dict(gradient_as_bucket_view=True), dict(find_unused_parameters=True)):
    torch.manual_seed(13)
    net = DDP(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ELU(), Constrained(8, 3)), **words)
    optimizer = SGD(net.parameters(), lr=0.3, momentum=0.9)
    for step in range(5):
        for micro in range(2):
            with net.no_sync() if micro == 0 else contextlib.nullcontext():
                loss = F.cross_entropy(net(noise(6, 4, seed=10 * step + micro)), torch.arange(6) % 3)
                loss.backward()
        optimizer.step(), optimizer.zero_grad()
        if step == 2:
            for p in net.parameters():
                p.data = p.data.clamp(-0.4, 0.4)
        say("train", loss)
    say_all(net)
""")

    def test_compiled_modules(self):
        program = """
def net():
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3))
compiled = partial(torch.compile, backend="BACKEND")
for name, make in (("inside", lambda: DDP(compiled(net()))), ("outside", lambda: compiled(DDP(net()))),
                   ("method", lambda: (wrapper := DDP(net()), wrapper.compile(backend="BACKEND"))[0]),
                   ("static", lambda: compiled(DDP(net(), static_graph=True)))):
    torch._dynamo.reset()
    model = make()
    optimizer = AdamW(model.parameters(), lr=1e-2)
    for step in range(4):
        for micro in range(2):
            inner = model._orig_mod if isinstance(model, torch._dynamo.OptimizedModule) else model
            inner.require_backward_grad_sync = micro == 1 or name == "static"
            loss = F.mse_loss(model(noise(5, 6, seed=10 * step + micro)), noise(5, 3, seed=10 * step + micro + 5)) / 2
            loss.backward()
            say(name, loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    say_all(model)
"""
        self.run_ways(program.replace("BACKEND", "aot_eager"))
        if os.environ.get("DDP_TEST_INDUCTOR"):
            self.run_ways(program.replace("BACKEND", "inductor"), limit=280)


NANOGPT = """
import inspect
class LayerNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(n)), None
    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)
class Block(nn.Module):
    def __init__(self, n, heads):
        super().__init__()
        self.ln_1, self.ln_2, self.heads = LayerNorm(n), LayerNorm(n), heads
        self.c_attn, self.c_proj = nn.Linear(n, 3 * n, bias=False), nn.Linear(n, n, bias=False)
        self.c_fc, self.out = nn.Linear(n, 4 * n, bias=False), nn.Linear(4 * n, n, bias=False)
    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout if self.training else 0, is_causal=True)
        x = x + F.dropout(self.c_proj(y.transpose(1, 2).reshape(B, T, C)), dropout, self.training)
        return x + F.dropout(self.out(F.gelu(self.c_fc(self.ln_2(x)))), dropout, self.training)
class GPT(nn.Module):
    def __init__(self, vocab=17, block=12, n=16, heads=2, layers=2):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(vocab, n), wpe=nn.Embedding(block, n), h=nn.ModuleList(Block(n, heads) for _ in range(layers)),
                                              ln_f=LayerNorm(n)))
        self.lm_head = nn.Linear(n, vocab, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0.0, 0.02 / (math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 1))
    def forward(self, idx, targets):
        x = F.dropout(self.transformer.wte(idx) + self.transformer.wpe(torch.arange(idx.shape[1])), dropout, self.training)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)
    def configure_optimizers(self, weight_decay, lr, betas):
        params = {name: p for name, p in self.named_parameters() if p.requires_grad}
        groups = [{"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": weight_decay},
                  {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0}]
        return AdamW(groups, lr=lr, betas=betas, **dict(shard=True, max_norm=1.0) if way == "kernels" else {})
def get_batch(split, number):
    generator = torch.Generator().manual_seed(100 * number + 10 * (split == "val") + rank)
    start = torch.randint(17, (4, 1), generator=generator)
    data = (start * 3 ** torch.arange(13)) % 17
    return data[:, :-1], data[:, 1:]
def get_lr(it, warmup=3, decay=12, top=2e-2, low=2e-3):
    if it < warmup:
        return top * (it + 1) / (warmup + 1)
    return low if it > decay else low + 0.5 * (1 + math.cos(math.pi * (it - warmup) / (decay - warmup))) * (top - low)
for autocast, dropout in VARIANTS:
    torch.manual_seed(1337 + rank)
    ctx = torch.amp.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
    model = GPT()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    accumulation = 3
    model = DDP(model)
    raw_model = model.module
    optimizer = raw_model.configure_optimizers(0.1, 1e-2, (0.9, 0.95))
    number = 0
    for it in range(14):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        if it % 5 == 0:                                     # estimate_loss() of the master alone, and its checkpoint
            if rank == 0:
                model.eval()
                with torch.no_grad():
                    say("val", torch.stack([model(*get_batch("val", k))[1] for k in range(2)]).mean())
                model.train()
            kept = copy.deepcopy(raw_model.state_dict()) if rank == 0 else None
            kept = {"model": kept, "optimizer": optimizer.state_dict()} if rank == 0 or way == "kernels" else None
        for micro_step in range(accumulation):
            model.require_backward_grad_sync = micro_step == accumulation - 1
            with ctx:
                logits, loss = model(*get_batch("train", number))
                loss = loss / accumulation
            number += 1
            scaler.scale(loss).backward()
        if way != "kernels":
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        say("train", loss * accumulation)
    if way != "kernels":
        say_all(model)
"""


if __name__ == "__main__":
    main()
