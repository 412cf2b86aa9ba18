# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them, at toy size: language models, recurrent and reinforced ones, unusual optimizers, torch.compile."""
from support import main, need

need("torch", "numpy")
import libddp.c10d  # noqa: E402, F401
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports
from torch_programs import Programs  # noqa: E402


class Models(Programs):
    def test_nanogpt(self):
        self.run_ways(NANOGPT.replace("VARIANTS", "((False, 0.0), (False, 0.1), (True, 0.0))"))

    def test_nanogpt_with_libddps_kernels(self):
        """Their steps have other roundings than PyTorch's. In F64 is what both come near to."""
        program = NANOGPT.replace("VARIANTS", "((False, 0.0),)").replace("say_all(model)", "pass")
        gloo, kernels, wide = ([float(line.split()[-1]) for line in self.losses(program, way)] for way in ("gloo", "kernels", "wide"))
        self.assertEqual(len(gloo), len(kernels))
        worst = max(abs(one - exact) for one, exact in zip(gloo, wide))
        self.assertLess(max(abs(one - exact) for one, exact in zip(kernels, wide)), 4 * worst + 1e-6)

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
        self.run_ways("""
def net():
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3))
compiled = partial(torch.compile, backend="aot_eager")
for name, make in (("inside", lambda: DDP(compiled(net()))), ("outside", lambda: compiled(DDP(net()))),
                   ("method", lambda: (wrapper := DDP(net()), wrapper.compile(backend="aot_eager"))[0]),
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
""")


NANOGPT = """
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
