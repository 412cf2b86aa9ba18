# SPDX-License-Identifier: Apache-2.0
"""Training frameworks with PyTorch's wrapper over Gloo, with it on the backend libddp, and with libddp's wrapper in its place: the losses they log are
the same to the last digit."""
import importlib
import importlib.util
import os

from support import Test, forked, main, need

need("torch", "numpy")
import libddp.c10d  # noqa: E402, F401
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import hashlib, logging, math, os, warnings, libddp.c10d, libddp.torch, torch, torch.distributed as dist
from torch import nn
from torch.nn import functional as F
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
warnings.simplefilter("ignore")
os.environ.update(ACCELERATE_USE_CPU="true", HF_HUB_OFFLINE="1", POSSIBLE_USER_WARNINGS="off")
torch.set_num_threads(1)
if way == "wrapper":
    nn.parallel.DistributedDataParallel = libddp.torch.DistributedDataParallel
if framework != "lightning":
    dist.init_process_group("libddp" if way == "backend" else "gloo")
def say(what, value):
    print("loss", what, repr(float(value)))
def say_all(module):
    '''The bits of all parameters.'''
    print("loss", hashlib.sha256(b"".join(p.detach().contiguous().numpy().tobytes() for p in module.parameters())).hexdigest())
def noise(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 * seed + rank))
data = torch.Generator().manual_seed(1)
texts = (torch.randint(13, (32, 1), generator=data) + torch.arange(8) * torch.randint(1, 4, (32, 1), generator=data)) % 13
"""
TRAINER = """
from transformers import (BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed)
def tiny_gpt():
    set_seed(3)
    return GPT2LMHeadModel(GPT2Config(vocab_size=13, n_positions=8, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
def train(model, dataset, resume=False, **words):
    arguments = TrainingArguments(output_dir="out", use_cpu=True, per_device_train_batch_size=2, learning_rate=5e-3, report_to=[], logging_steps=1,
                                  disable_tqdm=True, seed=4, **{**dict(max_steps=5, save_strategy="no"), **words})
    trainer = Trainer(model, arguments, train_dataset=dataset, eval_dataset=dataset[:8])
    trainer.train(resume_from_checkpoint=resume or None)
    assert type(trainer.model_wrapped).__module__ == ("libddp.torch" if way == "wrapper" else "torch.nn.parallel.distributed"), trainer.model_wrapped
    for entry in trainer.state.log_history:
        for key in ("loss", "grad_norm", "eval_loss"):
            if key in entry:
                say(key, entry[key])
    say_all(model)
language = [{"input_ids": text, "labels": text} for text in texts]
"""


class Trainers(Test):
    def run_ways(self, framework, program, others=(), ways=("backend", "wrapper")):
        for module in (framework, *others):
            if importlib.util.find_spec(module) is None:
                self.skipTest(f"the module {module} is not installed")
            importlib.import_module(module)
        losses = {}
        for way in ("gloo", *ways):
            done = forked(f"way, framework = {way!r}, {framework!r}\n" + COMMON + program, size=2, limit=60)
            losses[way] = [line for line in self.ends_well(done).splitlines() if line[4:].startswith("loss ")]
        self.assertGreater(len(losses["gloo"]), 8)
        self.assertFalse([line for line in losses["gloo"] if line.endswith((" nan", " inf"))])
        for way in ways:
            self.assertEqual(losses["gloo"], losses[way], way)

    def test_transformers(self):
        self.run_ways("transformers", TRAINER + """
train(tiny_gpt(), language, gradient_accumulation_steps=2, lr_scheduler_type="cosine", warmup_steps=2, weight_decay=0.1, eval_strategy="steps", eval_steps=3,
      save_strategy="steps", save_steps=3)
train(tiny_gpt(), language, resume="out/checkpoint-3", gradient_accumulation_steps=2, lr_scheduler_type="cosine", warmup_steps=2, weight_decay=0.1)
train(tiny_gpt(), language, gradient_checkpointing=True, bf16=True, max_steps=3)
set_seed(5)
bert = BertForSequenceClassification(BertConfig(vocab_size=13, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3,
                                                max_position_embeddings=8))
train(bert, [{"input_ids": text, "labels": text[0] % 3} for text in texts], max_steps=4, label_smoothing_factor=0.1)
""", ["accelerate"])

    def test_peft(self):
        self.run_ways("peft", TRAINER + """
from peft import LoraConfig, get_peft_model
model = get_peft_model(tiny_gpt(), LoraConfig(r=2, lora_alpha=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True, modules_to_save=["ln_f"]))
with torch.no_grad():
    for name, p in model.named_parameters():
        if "lora_B" in name:
            p.normal_(0, 0.1)
train(model, language, max_steps=4)
net = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
for step in range(4):
    x = texts[8 * step + 4 * rank:][:4]
    loss = net(input_ids=x, labels=x).loss
    loss.backward()
    optimizer.step(), optimizer.zero_grad()
    say("by hand", loss)
    model.merge_adapter()
    with torch.no_grad():
        say("merged", model.eval()(input_ids=texts, labels=texts).loss)
    model.train()
    model.unmerge_adapter()
""", ["transformers", "accelerate"])

    def test_accelerate(self):
        self.run_ways("accelerate", """
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
set_seed(7)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.out, self.unused = nn.Embedding(13, 8), nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.GELU(), nn.Linear(16, 13)), nn.Linear(2, 2)
    def forward(self, x):
        return self.out(self.embedding(x))
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
loader = DataLoader(TensorDataset(texts[:30]), batch_size=4, shuffle=True)
net, optimizer, loader, scheduler = accelerator.prepare(net, optimizer, loader, scheduler)
assert isinstance(net, libddp.torch.DistributedDataParallel) == (way == "wrapper") and accelerator.num_processes == size
for epoch in range(3):
    for text, in loader:
        with accelerator.accumulate(net):
            loss = F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                say("norm", accelerator.clip_grad_norm_(net.parameters(), 0.7))
            optimizer.step(), scheduler.step(), optimizer.zero_grad()
        say("train", accelerator.gather_for_metrics(loss.detach().reshape(1)).mean())
    if epoch == 1:
        net.eval()                                          # a state that is saved and loaded again
        accelerator.save_state("state")
        net.train()
        accelerator.wait_for_everyone()
        with torch.no_grad():
            for p in net.parameters():
                p.zero_()
        accelerator.load_state("state")
say_all(accelerator.unwrap_model(net))
assert not isinstance(accelerator.unwrap_model(net), nn.parallel.DistributedDataParallel)
accelerator.end_training()
""")

    def test_accelerate_with_a_hook_and_local_steps(self):
        self.run_ways("accelerate", """
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.local_sgd import LocalSGD
from accelerate.utils import DDPCommunicationHookType
def net():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
def train(step):
    loss = F.mse_loss(model(noise(5, 4, seed=step)), noise(5, 2, seed=step + 50))
    accelerator.backward(loss)
    optimizer.step(), optimizer.zero_grad()
    say("train", loss)
accelerator = Accelerator(cpu=True)
module = net()
model, optimizer = accelerator.prepare(module, torch.optim.SGD(module.parameters(), lr=0.2))
with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=3, enabled=True) as local:
    for step in range(7):
        train(step)
        local.step()
say_all(module)
accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.FP16)])
module = net()
model, optimizer = accelerator.prepare(module, torch.optim.SGD(module.parameters(), lr=0.2))
for step in range(4):
    train(step)
say_all(module)
accelerator.end_training()
""")


LIGHTNING = """
import lightning
from lightning import Trainer, LightningModule, seed_everything
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset
for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
class Strategy(DDPStrategy):
    def _setup_model(self, model):
        return libddp.torch.DistributedDataParallel(model, **self._ddp_kwargs) if way == "wrapper" else super()._setup_model(model)
def fit(model, steps=6, strategy=(), **words):
    trainer = Trainer(accelerator="cpu", devices=size, strategy=Strategy(process_group_backend="libddp" if way == "backend" else "gloo", **dict(strategy)),
                      max_epochs=3, max_steps=steps, logger=False, enable_progress_bar=False, enable_model_summary=False,
                      **{**dict(enable_checkpointing=False), **words})
    trainer.fit(model, DataLoader(TensorDataset(texts), batch_size=4, shuffle=True), DataLoader(TensorDataset(texts[:8]), batch_size=2))
    assert dist.get_world_size() == size and dist.get_backend() == ("libddp" if way == "backend" else "gloo")
    say_all(model)
    return trainer
"""


class Lightning(Trainers):
    test_transformers = test_peft = test_accelerate = None

    def test_automatic_optimization(self):
        self.run_ways("lightning", LIGHTNING + """
class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(13, 8), nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.GELU(), nn.Linear(16, 13))
    def loss(self, text):
        return F.cross_entropy(self.out(self.embedding(text[:, :-1]).flatten(0, 1)), text[:, 1:].flatten())
    def training_step(self, batch, index):
        loss = self.loss(batch[0])
        say("train", loss)
        self.log("mean", loss, sync_dist=True, on_epoch=True)
        return loss
    def validation_step(self, batch, index):
        self.log("val", self.loss(batch[0]))                # rank 0's: others have rank 0's buffers too with libddp's wrapper, and their own with PyTorch's
    def on_validation_epoch_end(self):
        say("buffers", sum(b.double().sum() for b in self.buffers()) * (rank == 0))
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2), "interval": "step"}]
for words in (dict(), dict(accumulate_grad_batches=2, gradient_clip_val=0.5), dict(precision="bf16-mixed"),
              dict(strategy=dict(static_graph=True)), dict(strategy=dict(gradient_as_bucket_view=True))):
    seed_everything(3, verbose=False)
    torch.manual_seed(30 + rank)
    trainer = fit(Net(), **words)
    say("metric", trainer.callback_metrics["val"] if rank == 0 else 0)
""")

    def test_manual_optimization(self):
        """A GAN: training_step() runs within the wrapper's forward, and backward within that."""
        self.run_ways("lightning", LIGHTNING + """
class GAN(LightningModule):
    def __init__(self, accumulate=1):
        super().__init__()
        self.automatic_optimization = False
        self.accumulate = accumulate
        self.generator, self.discriminator = nn.Sequential(nn.Linear(3, 12), nn.GELU(), nn.Linear(12, 8)), nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 1))
    def training_step(self, batch, index):
        real, (g, d) = batch[0].float() / 6 - 1, self.optimizers()
        z = noise(len(real), 3, seed=index)
        self.toggle_optimizer(g)
        loss = F.softplus(-self.discriminator(self.generator(z))).mean()
        say("g", loss)
        self.manual_backward(loss)
        g.step(), g.zero_grad()
        self.untoggle_optimizer(g)
        self.toggle_optimizer(d)
        loss = F.softplus(-self.discriminator(real)).mean() + F.softplus(self.discriminator(self.generator(z).detach())).mean()
        say("d", loss)
        self.manual_backward(loss)
        d.step(), d.zero_grad()
        self.untoggle_optimizer(d)
    def configure_optimizers(self):
        return [torch.optim.Adam(net.parameters(), lr=1e-2) for net in (self.generator, self.discriminator)]
class One(LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Embedding(13, 8), nn.Linear(8, 13))
    def training_step(self, batch, index):
        optimizer = self.optimizers()
        for part in batch[0].chunk(2):
            loss = F.cross_entropy(self.net(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())
            self.manual_backward(loss)
            if index % 2 or not lazy:
                self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
                optimizer.step(), optimizer.zero_grad()
            say("one", loss)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)
for lazy, strategy in ((False, dict()), (True, dict()), (False, dict(static_graph=True))):
    torch.manual_seed(5)
    fit(One(), steps=12, strategy=strategy)
torch.manual_seed(5)
fit(GAN(), steps=12, strategy=dict(find_unused_parameters=True))
""")

    def test_fabric(self):
        self.run_ways("lightning", """
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
class Strategy(DDPStrategy):
    def setup_module(self, module):
        return libddp.torch.DistributedDataParallel(module, **self._ddp_kwargs) if way == "wrapper" else super().setup_module(module)
fabric = Fabric(accelerator="cpu", devices=size, strategy=Strategy(process_group_backend="libddp" if way == "backend" else "gloo"))
fabric.launch()
torch.manual_seed(3)
net = nn.Sequential(nn.Embedding(13, 8), nn.Linear(8, 13))
net, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=1e-2))
for step in range(12):
    text = texts[(4 * step + 2 * rank) % 28:][:4]
    with fabric.no_backward_sync(net, enabled=step % 3 != 2):
        loss = F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        fabric.backward(loss)
    if step % 3 == 2:
        say("norm", fabric.clip_gradients(net, optimizer, max_norm=0.5))
        optimizer.step(), optimizer.zero_grad()
    say("train", loss)
    say("mean", fabric.all_reduce(loss.detach()))
    if step == 5:
        fabric.save("state.ckpt", {"net": net, "optimizer": optimizer})
        with torch.no_grad():
            net[0].weight.zero_() if way == "nothing" else None
        fabric.load("state.ckpt", {"net": net, "optimizer": optimizer})
say_all(net)
""")


if __name__ == "__main__":
    main()
