# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them, at toy size: several networks, losses and passes in a step (GANs, self-supervised and multi-task learning)."""
from support import main, need

need("torch", "numpy")
import libddp.c10d  # noqa: E402, F401
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports
from torch_programs import Programs  # noqa: E402


class Several(Programs):
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


if __name__ == "__main__":
    main()
